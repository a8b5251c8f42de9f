"""Pulling: access, reads, long polling."""
