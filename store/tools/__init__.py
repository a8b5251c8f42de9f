"""Offline tools for a store directory, for the command line."""
