"""The process: its log, its machine, its loop."""
