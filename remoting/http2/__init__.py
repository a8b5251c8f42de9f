"""HTTP/2 without a socket: the bytes of a connection ↔ what happens to its streams."""
