"""Timers: the wheel, its log and its check file, saved and recovered together."""
