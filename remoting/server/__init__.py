"""The server side: the reactor."""
