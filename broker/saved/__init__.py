"""The tables' files: JSON, written whole and crash-safe, saved on request or periodically."""
