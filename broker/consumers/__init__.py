"""Consumers: connected clients, groups, subscriptions, offsets, queue locks."""
