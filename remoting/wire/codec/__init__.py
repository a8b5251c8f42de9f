"""Header bytes and envelopes, one module per type of header."""
