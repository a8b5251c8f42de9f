"""Tests of broker.filters."""
