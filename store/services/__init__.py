"""Clocks of the store: what happens by itself."""
