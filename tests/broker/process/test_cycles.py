"""The searches for cyclic garbage."""

import gc
import sys
from collections.abc import Iterator
from weakref import ref

import pytest
import trio
import trio.testing

from aerobee.broker.process import cycles


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """All objects but those of the test are frozen, as with a broker that has just started."""
    gc.collect()
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.trio
async def test_what_the_interpreter_has_looked_at_itself_is_not_looked_at_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of connections leave more young objects than one step may look at."""
    done: list[str] = []
    looks = 0

    def survivors(generation: int) -> list[object]:
        done.append("count")
        return []

    def collect(generation: int = 2) -> int:
        nonlocal looks
        done.append(f"collect {generation}")
        looks += generation == 0
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_objects", survivors)
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(cycles, "young_collections", lambda: looks)
    of_a_round = cycles.YOUNG_S * cycles.LOOKS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cycles.collect_cycles, cycles.YOUNG_S, lambda: 0)
        await trio.sleep(of_a_round + cycles.YOUNG_S / 2)
        assert done == ["collect 0"] * cycles.LOOKS + ["count", "collect 1"]
        done.clear()
        looks += 1
        await trio.sleep(of_a_round)
        # To count them takes as long as to search them.
        assert done == ["collect 0"] * cycles.LOOKS + ["freeze"]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_memory_that_grows_is_searched_as_a_whole_before_a_day_is_over(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R18: garbage that was frozen while it was in use, of a port scan for example."""
    done: list[str] = []
    blocks = 3_000_000
    connections = 0

    def collect(generation: int = 2) -> int:
        nonlocal blocks
        if generation == 2:
            done.append("whole")
            blocks = 3_100_000
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            cycles.collect_cycles,
            cycles.YOUNG_S,
            lambda: connections * cycles.CONNECTION_BLOCKS,
        )
        await trio.sleep(1)
        blocks = 4_400_000
        await trio.sleep(1)
        assert not done, "less than half as many again"
        blocks, connections = 6_000_000, 10_000
        await trio.sleep(1)
        assert not done, "it is of the connections"
        blocks, connections = 4_600_000, 0
        await trio.sleep(1)
        assert done == ["unfreeze", "whole"]
        nursery.cancel_scope.cancel()


class Cycle:
    """Something that only a search finds when it is garbage."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.trio
@pytest.mark.parametrize("many", [False, True])
async def test_garbage_that_was_in_use_while_a_search_looked_is_found(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    """R12: of scrapes, one a second, a third was in use then, and stayed in memory for hours."""
    # Far more than what else the process makes meanwhile.
    monkeypatch.setattr(cycles, "OLD_OBJECTS", 20_000)
    # A machine that is slow freezes what a search has looked at for too long.
    monkeypatch.setattr(cycles, "FEW_S", 60.0)
    of_a_round = cycles.YOUNG_S * cycles.LOOKS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cycles.collect_cycles, cycles.YOUNG_S, lambda: 0)
        one = Cycle()
        left = ref(one)
        others: list[object] = [[] for _ in range(12_000 * (1 + many))]
        await trio.sleep(1.5 * of_a_round)
        del one
        others[:] = [[] for _ in others]
        await trio.sleep(of_a_round)
        assert (left() is not None) == many
        nursery.cancel_scope.cancel()
