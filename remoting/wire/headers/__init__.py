"""Header declarations, one module per family of request codes."""
