"""Hands of the server side: the reactor."""
