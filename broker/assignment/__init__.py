"""Queue assignment by the broker, and whether a group pulls or pops."""
