"""How settings are declared, read, checked, derived and printed; `broker.config` is the door."""
