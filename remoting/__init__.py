"""Bytes and commands: frames, headers, reactor and client. Knows no topic and no disk."""
