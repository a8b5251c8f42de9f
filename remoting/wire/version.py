"""Version numbers of clients and brokers by name: 479 is V5_3_3.

Source: remoting §1.8 (MQVersion).
"""

from __future__ import annotations

HIGHER_VERSION = "HIGHER_VERSION"
"""RocketMQ's name for a number after its last known release."""

V4_0_0 = 213
V5_9_9 = 611


def describe(version: int) -> str:
    """The name of a version number; numbers before 4.0.0 stand for themselves."""
    if version > V5_9_9:
        return HIGHER_VERSION
    if version < V4_0_0:
        return str(version)
    # Releases have every second number; the one before each is its snapshot.
    steps, snapshot = divmod(version - V4_0_0, 2)
    release = 400 + steps + snapshot
    name = f"V{release // 100}_{release // 10 % 10}_{release % 10}"
    return f"{name}_SNAPSHOT" if snapshot else name
