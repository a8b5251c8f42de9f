"""Access control: who sends a request, and whether it may be served."""
