"""The tables' files: JSON, written whole and crash-safe, saved when asked or by the clock."""
