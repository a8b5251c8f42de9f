"""Bytes and commands: frames, headers, the reactor and the client side. Knows no topic and no disk."""
