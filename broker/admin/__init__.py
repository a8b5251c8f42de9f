"""Requests of administrators, dashboards and exporters."""
