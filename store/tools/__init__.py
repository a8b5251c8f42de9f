"""Offline tools for a store directory: verify, dump, stats, repair. For the command line."""
