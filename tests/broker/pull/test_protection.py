"""Groups that are too far behind are stopped, if that is wanted. Time is virtual."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace
from structlog.testing import capture_logs

from aerobee.broker.pull.protection import PERIOD_S
from tests.broker.desk import Desk, open_desk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trio


async def consumed(desk: Desk, group: str, at: int) -> None:
    """The group has pulled something, and goes on there."""
    await desk.pull("t", consumer_group=group)
    desk.offsets.commit(group, "t", 0, at, 0)


async def looked(desk: Desk, times: int = 1) -> None:
    """So many looks of the service."""
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.protection.run)
        await trio.sleep(times * PERIOD_S + 1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_group_that_reads_slowly_is_stopped_if_that_is_wanted(
    tmp_path: Path, autojump_clock: Any, wanted: bool
) -> None:
    asked: dict[str, Any] = {
        "disable_consume_if_consumer_read_slowly": wanted,
        "consumer_fallbehind_threshold_bytes": 5_000,
    }
    async with open_desk(tmp_path, **asked) as desk:
        desk.topic("t")
        for _ in range(10):
            await desk.send("t", b"x" * 1_000)
        await consumed(desk, "slow", 3)
        await consumed(desk, "quick", 8)
        desk.offsets.commit("gone", "t", 0, 0, 0)
        with capture_logs() as lines:
            await looked(desk)
        stopped = [line["group"] for line in lines if line["event"] == "group.disabled"]
        assert stopped == (["slow"] if wanted else [])
        configs = desk.groups.configs
        assert configs["slow"].consume_enable is not wanted
        assert configs["quick"].consume_enable


async def test_a_group_switched_on_again_stays_on_until_it_takes_more(
    tmp_path: Path, autojump_clock: Any
) -> None:
    asked: dict[str, Any] = {
        "disable_consume_if_consumer_read_slowly": True,
        "consumer_fallbehind_threshold_bytes": 500,
    }
    async with open_desk(tmp_path, **asked) as desk:
        desk.topic("t")
        for _ in range(3):
            await desk.send("t", b"x" * 1_000)
        await consumed(desk, "g", 0)
        await looked(desk)
        config = desk.groups.configs["g"]
        assert not config.consume_enable
        desk.groups.update(replace(config, consume_enable=True), 0)
        await looked(desk, 2)
        assert desk.groups.configs["g"].consume_enable


@pytest.mark.parametrize("what", ["deleted", "changed"])
async def test_what_happens_to_a_group_while_its_lag_is_measured_stays(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    changes: dict[str, Any] = {
        "disable_consume_if_consumer_read_slowly": True,
        "consumer_fallbehind_threshold_bytes": 500,
    }
    async with open_desk(tmp_path, **changes) as desk:
        desk.topic("t")
        for _ in range(3):
            await desk.send("t", b"x" * 1_000)
        await consumed(desk, "g", 0)
        config = desk.groups.configs["g"]
        measured = desk.protection.behind_bytes

        async def behind_bytes(*of: str) -> int:
            if what == "deleted":
                desk.groups.delete("g", 0)
            else:
                desk.groups.update(replace(config, retry_max_times=3), 0)
            return await measured(*of)

        monkeypatch.setattr(desk.protection, "behind_bytes", behind_bytes)
        await looked(desk)
        if what == "deleted":
            assert "g" not in desk.groups.configs
        else:
            stopped = replace(config, retry_max_times=3, consume_enable=False)
            assert desk.groups.configs["g"] == stopped


async def test_a_queue_that_cannot_be_read_does_not_end_the_broker(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(tmp_path, disable_consume_if_consumer_read_slowly=True) as desk:
        desk.topic()
        await desk.send()
        await consumed(desk, "g", 0)

        async def fails(call: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(desk.store, "complete", fails)
        with capture_logs() as logs:
            await looked(desk)
        assert [one["error"] for one in logs if one["event"] == "group.not_measured"]
