"""The settings themselves: a file for each part of the broker, which is their section in YAML."""
