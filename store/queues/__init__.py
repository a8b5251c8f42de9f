"""Consume queues: their files, and dispatch, which builds them from the log."""
