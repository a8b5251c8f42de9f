"""Sending: destinations, checks, retries, dead letters, replies."""
