"""Flushing of log and queues, and the files that record how far: checkpoint and recovery point."""
