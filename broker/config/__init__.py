"""Settings: how they are declared, read, checked, derived and printed."""
