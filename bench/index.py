"""What the index costs: the hand-over and the building per message, a search, a write.

`python -m bench.index [DIRECTORY]` prints one table; one core, in process, no network. What it
costs the whole broker: `python -m bench.broker --alone --only "8 x 32"`, once more with
`--set messageIndexEnable=false`.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from typing import TYPE_CHECKING

import trio

from aerobee.store.config import FlushDiskType
from aerobee.store.format.index import KeyHasher
from aerobee.store.format.record import MessageDraft
from bench.append import HOST, PER_ROUND, ROUNDS, open_store, row
from bench.arguments import existing_directory, program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.store.message_store import MessageStore

MESSAGES = PER_ROUND * ROUNDS
PER_MS = 50
"""Messages that share the time in their ids, as at 50,000 a second."""


def properties(number: int, keys: str = "") -> bytes:
    """With a client's id as Java makes them: process, time, counter."""
    head = f"KEYS\x01{keys}\x02" if keys else ""
    unique = f"7F000001AAAA18B4AAC2{0x1234567 + number // PER_MS:08X}{number & 0xFFFF:04X}"
    return f"{head}UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02".encode()


def drafts(keys: str = "") -> list[MessageDraft]:
    return [
        MessageDraft("BenchTopic", n % 8, b"x" * 128, properties(n, keys.format(n)), HOST, HOST)
        for n in range(MESSAGES)
    ]


def hashing(messages: Sequence[MessageDraft]) -> float:
    """Best µs per message."""
    hashes = KeyHasher().hashes
    best = float("inf")
    for at in range(0, MESSAGES, PER_ROUND):
        batch = messages[at : at + PER_ROUND]
        began = time.perf_counter()
        for message in batch:
            hashes(message.topic, message.properties)
        best = min(best, time.perf_counter() - began)
    return best / PER_ROUND * 1e6


async def rounds(store: MessageStore, messages: Sequence[MessageDraft]) -> tuple[float, float]:
    """Best µs per message: dispatch with the hand-over, then hashing and building."""
    service = store.index.service
    dispatching = building = float("inf")
    for at in range(0, MESSAGES, PER_ROUND):
        for message in messages[at : at + PER_ROUND]:
            store.put(message)
        began = time.perf_counter()
        store.dispatch()
        dispatching = min(dispatching, time.perf_counter() - began)
        began = time.perf_counter()
        while await service.step():
            pass
        building = min(building, time.perf_counter() - began)
        await trio.lowlevel.checkpoint()
    return dispatching / PER_ROUND * 1e6, building / PER_ROUND * 1e6


async def parsed(store: MessageStore, messages: Sequence[MessageDraft]) -> float:
    """As `rounds`, with the hand-over forgotten: all of it comes from the log."""
    service = store.index.service
    best = float("inf")
    for at in range(0, MESSAGES // 4, PER_ROUND):
        for message in messages[at : at + PER_ROUND]:
            store.put(message)
        store.dispatch()
        service.pending.clear()
        began = time.perf_counter()
        while await service.step():
            pass
        best = min(best, time.perf_counter() - began)
    return best / PER_ROUND * 1e6


async def searched(store: MessageStore) -> float:
    """Median µs of a query for one message by its id."""
    times = []
    await store.index.query("BenchTopic", "nothing", 1, 0, 1 << 62)
    for number in range(0, MESSAGES, MESSAGES // 500):
        key = properties(number).split(b"\x02")[0].removeprefix(b"UNIQ_KEY\x01").decode()
        began = time.perf_counter()
        found = await store.index.query("BenchTopic", key, 32, 0, 1 << 62)
        times.append(time.perf_counter() - began)
        assert found.records, key
    return sorted(times)[len(times) // 2] * 1e6


async def run(directory: str) -> None:
    plain, keyed = drafts(), drafts("order-{0} buyer")
    row("hash of a client's id", hashing(plain))
    row("hashes of an id and two keys", hashing(keyed))
    store = open_store(directory, FlushDiskType.ASYNC_FLUSH)
    # Its own task would take turns with what is measured.
    store.dispatcher.followers.clear()
    store.put(plain[0])
    store.dispatch()
    dispatching, _ = await rounds(store, plain[: PER_ROUND * 20] * (ROUNDS // 20))
    row("dispatch without index", dispatching)
    store.dispatcher.followers.append(store.index.service.pending.append)
    while await store.index.service.step():
        pass
    dispatching, building = await rounds(store, plain)
    row("dispatch with the hand-over", dispatching)
    row("building, an id each", building)
    _, building = await rounds(store, keyed)
    row("building, an id and two keys each", building)
    row("building from the log, an id each", await parsed(store, plain))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.index.service.run)
        row("a query by id", await searched(store))
        nursery.cancel_scope.cancel()
    await store.close()


@program
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.index")
    parser.add_argument("directory", type=existing_directory, nargs="?")
    place = parser.parse_args().directory
    print(f"index · {platform.machine()} · Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        trio.run(run, directory)


if __name__ == "__main__":
    main()
