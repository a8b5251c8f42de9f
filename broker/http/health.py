"""The checks of the probes, and the rule that says which clients may read /metrics."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from aerobee.remoting.server.addresses import ip_of
from aerobee.store.space.retention import Level
from aerobee.store.space.watermark import usage_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.broker.counters.server_stats import LoopStats
    from aerobee.broker.process.loop_ticker import MonotonicClock
    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.machine import Space
    from aerobee.store.flags import RunningFlags

MUST_EXIST: Final = 2
"""The log's directory and the root."""
LOOP_LIMIT_S = 5.0
"""A loop that has not run for this long counts as dead."""


Check = Callable[[], str | None]
"""None when the check passes, else the problem in words for the person who reads the probe."""


MayScrape = Callable[[str, str], bool]
"""Whether a client at this address, with this `Authorization` header, may read /metrics."""


def everybody(address: str, authorization: str) -> bool:
    """Let every client read /metrics."""
    return True


def guarded(token: str) -> MayScrape:
    """Clients with this bearer token may; without one, clients of this host."""

    def may_scrape(address: str, authorization: str) -> bool:
        if token:
            return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())
        try:
            return ip_of(address).is_loopback
        except ValueError:
            return False

    return may_scrape


def may_scrape_by(config: BrokerConfig) -> MayScrape:
    """The rule for /metrics that the configuration asks for."""
    auth = config.auth
    closed = auth.metrics_token or (auth.enabled and not config.broker.insecure)
    return guarded(auth.metrics_token) if closed else everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The checks of each probe, by name; a probe passes when all of its checks do."""

    startup: Mapping[str, Check]
    live: Mapping[str, Check]
    ready: Mapping[str, Check]
    in_sync: Mapping[str, Check] = field(default_factory=dict)
    """The further checks of a broker that is to be in sync with others."""
    noted: Mapping[str, Check] = field(default_factory=dict)
    """The facts that a person should know of a broker that is ready; no probe fails for them."""


def loop_turns(stats: LoopStats, clock: MonotonicClock) -> Check:
    """The check that the loop ran its ticker within LOOP_LIMIT_S."""

    def check() -> str | None:
        still_s = clock.monotonic() - stats.last_turn
        return f"the loop has stood still for {still_s:.1f} s" if still_s > LOOP_LIMIT_S else None

    return check


class StoreDoor(Protocol):
    """The part of the message store that probes read."""

    @property
    def flags(self) -> RunningFlags: ...
    @property
    def config(self) -> StoreConfig: ...


def make_health(
    *,
    serving: Callable[[], bool],
    stopping: Check,
    replication: Check,
    slaves: Check,
    apart: Check,
    weakened: Check,
    stats: BrokerStats,
    store: StoreDoor,
    disk: Disk,
    places: Sequence[Path],
    clock: Clock,
) -> Health:
    """The checks of the three probes.

    `serving`: recovered, and accepting connections. `stopping`: the reason, once it is to stop.
    `replication`: why a slave cannot follow its master. `slaves`: why sends wait in vain.
    `apart`: why this broker is not in sync with its master or its group. `weakened`: settings under
    which acknowledged messages can be lost.
    """

    def started() -> str | None:
        return None if serving() else "recovery is not finished"

    def writable() -> str | None:
        return store.flags.fault or None

    return Health(
        startup={"recovered": started},
        live={"loop": loop_turns(stats.loop, clock)},
        ready={
            "recovered": started,
            "running": stopping,
            "store_writable": writable,
            "replication": replication,
            "disk": disk_has_room(disk, places, lambda: store.config),
        },
        in_sync={"in_sync": apart},
        noted={"slaves": slaves, "weakened": weakened},
    )


def disk_has_room(disk: Disk, places: Sequence[Path], config: Callable[[], StoreConfig]) -> Check:
    """The check that the disks are below the limit at which the store refuses sends.

    That is diskSpaceWarningLevelRatio, or the space to keep free in its place. The first two places
    must exist, log and root; the others may be on disks of their own.
    """

    def check() -> str | None:
        settings = config()
        for number, place in enumerate(places):
            try:
                space = disk.free_space(place)
            except FileNotFoundError:
                if number < MUST_EXIST:
                    return f"{place} is not there"
                continue
            reason = _no_room(space, settings)
            if reason is not None:
                return reason
        return None

    return check


def _no_room(space: Space, settings: StoreConfig) -> str | None:
    usage = usage_of(space, settings)
    if usage.level < Level.FULL:
        return None
    keep_bytes = settings.disk_space_warning_level_free_bytes
    if keep_bytes:
        return f"{space.available_bytes} bytes free, {keep_bytes} are to stay free"
    limit = settings.disk_space_warning_level_ratio_percent
    return f"{usage.used_percent} % used, the limit is {limit} %"
