"""A line a minute for pools that were busy, and none for the others. Time is virtual."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.pools.pool_watch import PoolWatch
from aerobee.remoting.server.pools import Pool, Waiting
from tests.kit.running_store import TrioClock

pytestmark = pytest.mark.trio


def busy(lines: list[Any]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key not in ("event", "log_level")}
        for line in lines
        if line["event"] == "pool.busy"
    ]


async def test_a_pool_that_refused_or_kept_waiting_is_told_of_once_a_minute(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    clock = TrioClock()
    send, pull, idle = (Pool(name, width=1, capacity=10, max_wait_ms=200) for name in "spi")
    with capture_logs() as lines:
        await nursery.start(PoolWatch([send, pull, idle], clock).run)
        send.refused, send.timed_out, idle.depth = 3, 2, 1
        nobody: Any = SimpleNamespace(lane="one connection")
        for runs in (True, False):
            assert pull.enter(Waiting(clock.monotonic(), nobody, nobody, nobody)) is runs
        pull.depth = 2
        await trio.sleep(2.5)
        assert pull.next(nobody.lane) is not None
        pull.depth = 0
        await trio.sleep(59)
        assert busy(lines) == [
            {"pool": "s", "deepest": 0, "waited_ms": 0, "refused": 3, "timed_out": 2},
            {"pool": "p", "deepest": 2, "waited_ms": 2_000, "refused": 0, "timed_out": 0},
        ]
        del lines[:]
        await trio.sleep(120)
        assert busy(lines) == []
