"""Failover: who is the master of a group, decided outside of it, and until when."""
