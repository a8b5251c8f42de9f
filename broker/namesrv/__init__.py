"""The embedded name server, and how this broker registers with others."""
