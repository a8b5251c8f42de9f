"""Filters written in SQL92: text → tree → one Python function over a message's properties."""
