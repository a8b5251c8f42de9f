"""What the broker answers: one module per family of request codes."""
