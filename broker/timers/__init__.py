"""Timers: messages delivered at a time that they name, and their recall."""
