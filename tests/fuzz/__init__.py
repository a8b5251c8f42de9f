"""Fuzzing of everything that reads bytes from elsewhere. See docs/fuzzing.md."""
