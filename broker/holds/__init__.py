"""Long polling: what held pulls and pops have in common."""
