"""Words of the wire: bytes to commands and back. Pure: no socket, no clock."""
