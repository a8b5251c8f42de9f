"""Searches for cyclic garbage, a little at a time: no search stops the loop for long."""

from __future__ import annotations

import gc
import sys
from time import thread_time
from typing import TYPE_CHECKING, Final, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

GC_THRESHOLDS: Final = (20_000, 1_000_000, 1_000_000)
"""Objects of a request are freed by reference count; frequent searches for cycles only cost time.
Set at the start, because the import of the web framework would trigger search after search. Later
`collect_cycles` mostly searches before so many objects exist, which takes 3 ms at most."""
YOUNG_S: Final = 0.05
"""How often the youngest generation is searched for cycles. The interpreter counts allocations less
deallocations: with thousands of held pulls, each of which evicts another, hundreds of thousands of
young objects accumulate uncounted, and one search of all of them took 0.2 s."""
LOOKS: Final = 5
"""After so many searches, the objects that survived are searched once more."""
FEW_S: Final = 0.004
"""If the searches took more CPU time, or the interpreter started one itself, too many objects
survived: they are frozen until the next full search. Objects that thousands of new connections
allocate have no cycles."""
OLD_OBJECTS: Final = 20_000
"""When so many objects have survived those searches, all that are not frozen are searched, which
takes 1 ms; or, if there still are so many, frozen. Each page of the console leaves hundreds in
cycles, some of which are in use while a search looks: their memory stays below some 2 MB."""
WHOLE_S: Final = 86_400.0
"""How often everything is searched, which takes 0.1 s per million objects."""
GROWN_BLOCKS: Final = 1_000_000
"""Everything is searched sooner when so many blocks of memory were allocated since (some 100 MB),
and half as many again as there were: what was frozen before it became garbage would stay. Each bad
request to the HTTP port leaves 2 KiB of cycles, so a port scan could take all memory in a day."""
CONNECTION_BLOCKS: Final = 150
"""A connection takes at most about so many, with its client's heartbeat and a held pull."""
QUEUE_BLOCKS: Final = 10
"""The same of a queue of a topic."""


async def collect_cycles(young_s: float, in_use: Callable[[], int]) -> NoReturn:
    """Search for cyclic garbage a little at a time; for new objects after each `young_s`.

    `in_use`: how many blocks of memory are surely no garbage, as far as their owners can tell.
    """
    whole_at = trio.current_time() + WHOLE_S
    survivors = 0
    before = sys.getallocatedblocks() - in_use()
    while True:
        spent_s = 0.0
        looks = young_collections()
        for _ in range(LOOKS):
            await trio.sleep(young_s)
            began = thread_time()
            gc.collect(0)
            spent_s += thread_time() - began
        if spent_s > FEW_S or young_collections() != looks + LOOKS:
            survivors = 0
            gc.freeze()
        elif (survivors := survivors + len(gc.get_objects(generation=1))) > OLD_OBJECTS:
            survivors = 0
            collect_old()
        else:
            gc.collect(1)
        grown = sys.getallocatedblocks() - in_use() - before
        if grown > max(GROWN_BLOCKS, before // 2) or trio.current_time() >= whole_at:
            whole_at = trio.current_time() + WHOLE_S
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            before = sys.getallocatedblocks() - in_use()


def collect_old() -> None:
    """Search all that is not frozen, if that is little, or freeze it."""
    # Python 3.14 has survivors in either of them.
    if sum(len(gc.get_objects(generation=number)) for number in (1, 2)) > OLD_OBJECTS:
        gc.freeze()
    else:
        gc.collect(2)


def young_collections() -> int:
    """How many searches of the youngest generation there were, started by anyone."""
    looks: int = gc.get_stats()[0]["collections"]
    return looks
