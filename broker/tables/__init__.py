"""What the broker remembers. Pure: time comes in as `now_ms`."""
