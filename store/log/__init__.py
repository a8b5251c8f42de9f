"""The commit log: segments, allocation ahead of use, and read-ahead."""
