"""JSON bodies, one module per subject."""
