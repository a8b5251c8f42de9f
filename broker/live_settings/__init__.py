"""Settings of a running broker: asked for, changed, kept for the next start, read again."""
