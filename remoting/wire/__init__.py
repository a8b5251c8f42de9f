"""The wire format: bytes to commands and back. Pure: no socket, no clock."""
