"""The HTTP listener of a process: its probes, and /metrics."""
