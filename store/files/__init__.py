"""Hands of the store: where the bytes lie. Only `disk` calls the operating system."""
