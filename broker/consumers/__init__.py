"""Consumers: who is connected, groups, subscriptions, offsets, queue locks."""
