"""Timer messages: delivered at a time of their own, and their recall."""
