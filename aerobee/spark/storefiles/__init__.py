"""Reads a store directory without a broker: `format("aerobee.store")`, and its audit."""
