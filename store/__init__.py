"""Records and disk: the commit log, its queues and what keeps them true.

Knows no socket and no command.
"""
