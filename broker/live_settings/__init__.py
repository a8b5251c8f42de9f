"""Settings of a running broker: read, changed, saved for the next start, and reloaded."""
