"""The meaning of the bytes on disk. Pure, and shared with the SDK."""
