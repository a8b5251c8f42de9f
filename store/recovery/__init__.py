"""The start: whether a directory may be opened, and what a crash has left of it."""
