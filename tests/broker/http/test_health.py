"""The checks of the probes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.http.health import disk_has_room, make_health
from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.machine import Space
from aerobee.store.flags import Flag, RunningFlags
from aerobee.store.space.retention import Level
from aerobee.store.space.watermark import usage_of
from aerobee.store.stats import StoreStats

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


class RoomyDisk(Disk):
    """A file system of 100 GiB with as much room as the test says."""

    free = 50 * GIB
    reserved = 0
    """Free, but not for ordinary users."""

    def free_space(self, path: Path) -> Space:
        return Space(100 * GIB, self.free, self.free - self.reserved)


@dataclass
class FakeStore:
    stats: StoreStats = field(default_factory=StoreStats)
    flags: RunningFlags = field(default_factory=RunningFlags)
    config: StoreConfig = field(default_factory=StoreConfig)
    flush_behind_bytes: int = 0
    dispatch_behind_bytes: int = 0


class StillClock:
    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 10.0


def test_a_disk_past_the_limit_is_said_with_both_figures(tmp_path: Path) -> None:
    disk = RoomyDisk()
    check = disk_has_room(disk, [tmp_path], StoreConfig)
    assert check() is None
    disk.free = 9 * GIB
    assert check() == "91 % used, the limit is 90 %"


def test_what_the_system_reserves_counts_as_little_as_for_the_store(tmp_path: Path) -> None:
    disk = RoomyDisk()
    disk.reserved = 40 * GIB
    check = disk_has_room(disk, [tmp_path], StoreConfig)
    disk.free = 46 * GIB
    assert usage_of(disk.free_space(tmp_path), StoreConfig()).level < Level.FULL
    assert check() is None, "54 of 60 GiB are 90 %"
    disk.free = 45 * GIB
    assert usage_of(disk.free_space(tmp_path), StoreConfig()).level is Level.FULL
    assert check() == "92 % used, the limit is 90 %"


def test_space_to_keep_free_stands_in_the_place_of_the_ratio(tmp_path: Path) -> None:
    disk = RoomyDisk()
    config = replace(StoreConfig(), disk_space_warning_level_free_bytes=20 * GIB)
    check = disk_has_room(disk, [tmp_path], lambda: config)
    assert check() is None
    disk.free = GIB
    assert check() == f"{GIB} bytes free, {20 * GIB} are to stay free"


def test_readiness_follows_recovery_the_store_the_disk_and_the_wish_to_stop(
    tmp_path: Path,
) -> None:
    disk, store, stats = RoomyDisk(), FakeStore(), BrokerStats()
    serving, stopping, stuck = False, None, None
    apart = "it has followed no master since its start"
    lacking, weak = "0 of 1 slaves are in sync", "minInSyncReplicas: a master alone acknowledges"
    health = make_health(
        serving=lambda: serving,
        stopping=lambda: stopping,
        replication=lambda: stuck,
        slaves=lambda: lacking,
        apart=lambda: apart,
        weakened=lambda: weak,
        stats=stats,
        store=store,
        disk=disk,
        places=[tmp_path],
        clock=StillClock(),
    )

    def failing() -> dict[str, str]:
        found = {name: check() for name, check in health.ready.items()}
        return {name: reason for name, reason in found.items() if reason}

    assert failing() == {"recovered": "recovery is not finished"}
    assert health.startup["recovered"]() is not None
    serving = True
    assert failing() == {}
    assert health.in_sync["in_sync"]() == apart
    noted = {name: check() for name, check in health.noted.items()}
    assert noted == {"slaves": lacking, "weakened": weak}
    assert health.startup["recovered"]() is None
    store.flags.set(Flag.NOT_WRITEABLE, "a sync to disk failed: EIO")
    disk.free = GIB
    store.flags.set(Flag.SLAVE, "this broker is a slave")
    stuck = "replication is stuck"
    stopping = "the broker is stopping"
    assert failing() == {
        "store_writable": "a sync to disk failed: EIO",
        "disk": "99 % used, the limit is 90 %",
        "running": "the broker is stopping",
        "replication": "replication is stuck",
    }
    stats.loop.last_turn = 9.9
    assert health.live["loop"]() is None
