"""Command line: each command maps its arguments to a config and calls one function."""
