"""Tests of `broker.live_settings`."""
