"""Deduplication: a message that was sent twice is stored once."""
