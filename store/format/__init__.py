"""What the bytes on disk mean. Pure, and shared with the SDK."""
