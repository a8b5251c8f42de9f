"""Topics: their configuration and attributes."""
