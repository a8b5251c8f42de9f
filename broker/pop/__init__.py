"""POP consumption: hand out, acknowledge, and hand out again what nobody acknowledged."""
