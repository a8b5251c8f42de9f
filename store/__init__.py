"""The store: the commit log, consume queues, index and timers on disk.

Knows no socket and no command.
"""
