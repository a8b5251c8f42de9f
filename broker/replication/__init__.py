"""Replication: slaves that copy the log of this broker."""
