"""The start: checks of the directory, and recovery after a crash."""
