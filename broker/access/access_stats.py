"""Counters of access control."""

from dataclasses import dataclass


@dataclass(slots=True)
class AccessStats:
    """Requests that access control refused."""

    not_authenticated: int = 0
    """Of nobody: unknown account, wrong signature, or none."""
    not_authorized: int = 0
    """Of an account without the right."""
    dropped: int = 0
    """Those among them that were one-way, so that nobody was told."""
