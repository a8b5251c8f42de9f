"""What dispatch costs per message, handed over or parsed, and what a read of 32 costs.

`python -m bench.dispatch [DIRECTORY]` prints one table. One core, in process, no network.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from typing import TYPE_CHECKING

import trio

from aerobee.store.config import FlushDiskType
from aerobee.store.format.tags import TagFilter
from bench.append import PER_ROUND, ROUNDS, draft, open_store, row, warm
from bench.arguments import existing_directory, program

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore

READS = 20_000


async def handed_over(store: MessageStore) -> float:
    """Best of the rounds, in µs per message."""
    drafts = [draft(128, queue_id) for queue_id in range(8)] * (PER_ROUND // 8 + 1)
    best = float("inf")
    for _ in range(ROUNDS):
        now_ms = store.commit_log.last_store_timestamp
        for message in drafts[:PER_ROUND]:
            store.put(message, now_ms)
        began = time.perf_counter()
        store.dispatch()
        best = min(best, time.perf_counter() - began)
        await trio.lowlevel.checkpoint()
    return best / PER_ROUND * 1e6


async def parsed(store: MessageStore) -> float:
    """As `handed_over`, with the hand-over dropped: the log is parsed."""
    best = float("inf")
    for _ in range(ROUNDS // 4):
        for number in range(PER_ROUND):
            store.put(draft(128, number % 8))
        store.dispatcher.pending.clear()
        began = time.perf_counter()
        store.dispatch()
        best = min(best, time.perf_counter() - began)
        await trio.lowlevel.checkpoint()
    return best / PER_ROUND * 1e6


def reads(store: MessageStore, queue_offset: int, matches: TagFilter | None = None) -> float:
    """Best µs per read of 32 messages."""
    best = float("inf")
    for _ in range(READS // 100):
        began = time.perf_counter()
        for _ in range(100):
            store.get("BenchTopic", 1, queue_offset, 32, matches)
        best = min(best, time.perf_counter() - began)
    return best / 100 * 1e6


async def run(directory: str) -> None:
    store = open_store(directory, FlushDiskType.ASYNC_FLUSH)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await warm(store, 128)
        row("dispatch, handed over", await handed_over(store))
        arrivals: list[int] = []

        def arrived(
            topic: str, queue_id: int, offset: int, code: int, stored: int, properties: bytes
        ) -> None:
            arrivals.append(offset)

        store.arrivals.add(arrived)
        row("dispatch, handed over, with arrivals", await handed_over(store))
        store.arrivals.remove(arrived)
        row("dispatch, parsed", await parsed(store))
        end = store.max_offset("BenchTopic", 1)
        row("get of 32, one view each, in memory", reads(store, end - 32))
        await store.flush_queues()
        row("get of 32, one view each, units from the file", reads(store, 0))
        row("get of 32, tag filter", reads(store, end - 32, TagFilter([0])))
        for number in range(64):
            store.put(draft(128, 1 if number < 32 else 2))
        store.dispatch()
        end = store.max_offset("BenchTopic", 1)
        row("get of 32, side by side", reads(store, end - 32))
        nursery.cancel_scope.cancel()
    await store.close()


@program
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dispatch")
    parser.add_argument("directory", type=existing_directory, nargs="?")
    place = parser.parse_args().directory
    print(f"dispatch · {platform.machine()} · Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        trio.run(run, directory)


if __name__ == "__main__":
    main()
