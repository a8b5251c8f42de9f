"""The commit log: its segments, made ahead and warmed."""
