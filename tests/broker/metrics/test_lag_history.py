"""The lag of the last hour, of lags that the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.metrics.figures import LAGS_MAX, GroupLag
from aerobee.broker.metrics.lag_history import LagHistory
from aerobee.broker.metrics.samples import HOUR
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from trio.testing import MockClock


class Desk:
    """A history of `lags`, sampled by hand."""

    def __init__(self) -> None:
        self.lags: list[GroupLag] = []
        self.clock = HandClock(1_000)
        self.history = LagHistory(self.read, self.clock.now_ms)

    async def read(self) -> list[GroupLag]:
        return self.lags

    async def sample(self, *lags: GroupLag) -> None:
        self.lags = list(lags)
        await self.history.sample()
        self.clock.pass_ms(1_000)


def behind(count: int, topic: str = "t", *, group: str = "g", retry: bool = False) -> GroupLag:
    return GroupLag(group, topic, retry, behind=count)


@pytest.mark.trio
async def test_a_history_is_as_long_as_the_rates_of_the_hour() -> None:
    desk = Desk()
    assert desk.history.of("g", "t") == []
    for number in range(HOUR.size + 2):
        await desk.sample(behind(number), behind(9, "u"))
    found = desk.history.of("g", "t")
    assert found == [(1_000 * (number + 1), number) for number in range(2, HOUR.size + 2)]


@pytest.mark.trio
async def test_what_is_deleted_while_a_sample_is_read_is_not_in_it() -> None:
    desk = Desk()

    async def read() -> list[GroupLag]:
        desk.history.delete_topic("t")
        desk.history.delete_group("gone")
        return [behind(5), behind(6, "u"), behind(7, "u", group="gone")]

    history = desk.history = LagHistory(read, desk.clock.now_ms)
    await history.sample()
    assert history.of("g", "t") == [(1_000, 0)]
    assert history.of("g", "u") == [(1_000, 6)]
    assert history.of("gone", "u") == [(1_000, 0)]


@pytest.mark.trio
async def test_who_was_not_behind_has_zeros_and_what_pop_puts_again_counts() -> None:
    desk = Desk()
    await desk.sample()
    await desk.sample(behind(2), behind(3, retry=True))
    await desk.sample(behind(0))
    assert desk.history.of("g", "t") == [(1_000, 0), (2_000, 5), (3_000, 0)]
    assert desk.history.of("nobody", "t") == [(1_000, 0), (2_000, 0), (3_000, 0)]


@pytest.mark.trio
async def test_with_more_groups_than_are_read_the_others_are_not_called_idle() -> None:
    desk = Desk()
    await desk.sample(*[behind(1, f"t{number}") for number in range(LAGS_MAX)])
    assert desk.history.of("g", "t0") == [(1_000, 1)]
    assert desk.history.of("g", "t") == []


@pytest.mark.trio
async def test_topics_and_groups_that_are_made_anew_have_no_history() -> None:
    desk = Desk()
    await desk.sample(behind(1), behind(2, "u"), behind(3, group="h"))
    desk.history.delete_topic("u")
    desk.history.delete_group("h")
    assert [desk.history.of(*pair) for pair in (("g", "t"), ("g", "u"), ("h", "t"))] == [
        [(1_000, 1)],
        [(1_000, 0)],
        [(1_000, 0)],
    ]


@pytest.mark.trio
async def test_it_is_sampled_every_ten_minutes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = Desk()
    desk.lags = [behind(7)]
    await nursery.start(desk.history.run)
    await trio.sleep(HOUR.period_s - 1)
    assert desk.history.of("g", "t") == []
    await trio.sleep(HOUR.period_s)
    assert desk.history.of("g", "t") == [(1_000, 7)]
    nursery.cancel_scope.cancel()
