"""Long polling: what pulls and pops that wait for a message have in common."""
