"""The files that settings come from: YAML, RocketMQ properties, and the keys of others."""
