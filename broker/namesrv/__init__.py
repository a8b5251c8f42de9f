"""The name server, inside a broker or alone, and how a broker registers with others."""
