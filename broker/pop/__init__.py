"""POP consumption: pop, acknowledge, and redeliver what was not acknowledged."""
