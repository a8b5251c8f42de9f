"""Answers worked out in tasks: however long one is, others run every millisecond or so."""

from __future__ import annotations

import pytest
import trio

from aerobee.remoting.server import turns
from aerobee.remoting.server.turns import TURN_S, Turns

pytestmark = pytest.mark.trio


async def test_others_run_when_a_turn_is_over_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, others = 100.0, 0

    async def other() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    monkeypatch.setattr(turns, "monotonic", lambda: now)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        mine = Turns()
        for _ in range(10):
            await mine.give_way()
        assert others == 0
        for _ in range(10):
            now += 2 * TURN_S
            await mine.give_way()
            await mine.give_way()
        assert 8 <= others <= 10
        nursery.cancel_scope.cancel()
