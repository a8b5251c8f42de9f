"""What is found out about a slow round afterwards, and who is refused for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.pools.slow_rounds import begun_since
from aerobee.remoting.server.arrivals import SlowRound
from aerobee.remoting.server.pools import NO_STALL
from tests.broker.desk import open_desk, send_header

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.desk import Desk

NOW_S = 500.0


def test_what_was_begun_in_a_round_are_the_last_store_times() -> None:
    assert begun_since(20, [40, 30, 20, 19, 30]) == [20, 30, 40]
    assert begun_since(50, [40]) == []


def stall(desk: Desk, monkeypatch: pytest.MonkeyPatch, *pauses_ms: int) -> None:
    """A round of the reactor in which so much time passes behind each send."""
    clock, shift = desk.clock, 0
    began_ms = clock.now_ms()
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now_ms", lambda: began_ms + shift)
        for pause_ms in pauses_ms:
            desk.begin(send_header(), b"x")
            shift += pause_ms
        desk.slow_rounds.look(SlowRound(NOW_S - shift / 1000, NOW_S))
    desk.after_round()


@pytest.mark.trio
async def test_an_append_beyond_the_limit_concerns_the_sends_that_came_before_its_end(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        stall(desk, monkeypatch, 3, 1_500, 0, 100)
        pools = desk.reactor.pools
        assert pools["send"].stall == pytest.approx((NOW_S - 0.600, NOW_S - 0.100))
        assert pools["pull"].stall == NO_STALL
        slow = desk.stats.slow_puts
        assert (slow.count, slow.max_s) == (2, 1.5)


@pytest.mark.trio
async def test_many_appends_that_are_quick_make_nothing_busy_however_long_the_round(
    tmp_path: Path, autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        stall(desk, monkeypatch, *[900] * 5)
        assert desk.reactor.pools["send"].stall == NO_STALL
        desk.slow_rounds.look(SlowRound(NOW_S, NOW_S + 50))
        assert desk.reactor.pools["send"].stall == NO_STALL, "nothing was appended"
