"""Replication: the log on its way to slaves, and from a master into this log."""
