"""Queries for one message: by key, by unique key, by id."""
