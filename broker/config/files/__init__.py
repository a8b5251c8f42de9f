"""Readers of configuration files: YAML, RocketMQ properties, and RocketMQ keys without effect."""
