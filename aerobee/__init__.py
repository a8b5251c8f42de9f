"""Aerobee: what users import."""
