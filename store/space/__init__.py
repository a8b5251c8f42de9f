"""Disk space: what is deleted when, and when sends are refused."""
