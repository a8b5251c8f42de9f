"""Mapped files and all I/O of the store. Only `disk` calls the operating system."""
