"""Settings under which messages can be lost that were acknowledged, or were meant to be kept twice.

Each is allowed, and none is silent: the start warns of it, and `/readyz` notes it for as long as
the broker runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.settings.broker import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.model import BrokerConfig

OFF = "false"


def weakened(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of each of these settings."""
    if config.failover.is_on:
        yield from _in_group(config)
        return
    synchronous = config.broker.broker_role is BrokerRole.SYNC_MASTER
    if synchronous and not config.needed_slaves:
        yield "brokerRole", "SYNC_MASTER waits for nobody as long as inSyncReplicas is 1"
    if config.replication.in_sync_replicas > 1 and not (synchronous or config.is_slave):
        yield "inSyncReplicas", "without brokerRole SYNC_MASTER no send waits for slaves"


def _in_group(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    if config.failover.min_in_sync_replicas < 2:
        yield (
            "minInSyncReplicas",
            "a master alone acknowledges messages, and its machine takes them along: set 2",
        )
    if not config.failover.enable_controller_mode:
        return
    yield (
        "enableControllerMode",
        "messages that a Java broker acknowledges as the master of this group can be lost",
    )
    if config.without_effect.get("allAckInSyncStateSet", "").strip().lower() == OFF:
        yield (
            "allAckInSyncStateSet",
            "this broker waits for all of the sync set all the same, and a Java master with this"
            " setting for none: set true at each Java broker of the group",
        )


def told_of(config: BrokerConfig) -> str | None:
    """All of them in one text; None: there are none."""
    return "; ".join(f"{name}: {text}" for name, text in weakened(config)) or None
