"""What one put costs, and what it takes to make it durable.

`python -m bench.append [DIRECTORY]` prints one table: time per put by message size, with and
without dispatch; then the way to the disk and back, by thread. One core, in process, no network.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.sync_thread import SyncThread
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format.record import MessageDraft
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutStatus
from bench.arguments import existing_directory, program

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = b"UNIQ_KEY\x017F000001AAAA18B4AAC2000000000001\x02WAIT\x01true\x02"
ROUNDS = 200
PER_ROUND = 500


def draft(size: int, queue_id: int = 0) -> MessageDraft:
    return MessageDraft(
        "BenchTopic", queue_id, b"x" * size, PROPERTIES, HOST, HOST, born_timestamp=1
    )


def open_store(directory: str, mode: FlushDiskType) -> MessageStore:
    config = StoreConfig(store_path_root_dir=directory, flush_disk_type=mode)
    store = MessageStore(config, disk=Disk(), clock=SystemClock())
    store.load()
    return store


async def warm(store: MessageStore, size: int) -> None:
    """The first segment is prepared, and its first pages have been touched."""
    await trio.sleep(0.2)
    for _ in range(1_000):
        assert store.put(draft(size)).status is PutStatus.PUT_OK
    store.dispatch()


async def time_puts(store: MessageStore, size: int, *, dispatch: bool) -> float:
    """Best of the rounds, in µs per message: the machine is shared."""
    drafts = [draft(size, queue_id) for queue_id in range(8)] * (PER_ROUND // 8 + 1)
    best = float("inf")
    for _ in range(ROUNDS):
        now_ms = store.commit_log.last_store_timestamp
        put = store.put
        began = time.perf_counter()
        for message in drafts[:PER_ROUND]:
            put(message, now_ms)
        if dispatch:
            store.dispatch()
        best = min(best, time.perf_counter() - began)
        store.dispatch()
        await trio.lowlevel.checkpoint()
    return best / PER_ROUND * 1e6


async def puts(directory: str) -> None:
    store = open_store(directory, FlushDiskType.ASYNC_FLUSH)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await warm(store, 128)
        for size in (128, 1024):
            row(f"put {size} B", await time_puts(store, size, dispatch=False))
            row(f"put {size} B and dispatch", await time_puts(store, size, dispatch=True))
        nursery.cancel_scope.cancel()
    await store.close()


async def durable(directory: str) -> None:
    store = open_store(directory, FlushDiskType.SYNC_FLUSH)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await warm(store, 128)
        for group in (1, 64):
            row(f"put and wait for the disk, {group} at a time", await time_groups(store, group))
        nursery.cancel_scope.cancel()
    await store.close()


async def time_groups(store: MessageStore, group: int) -> float:
    """Median µs from the put to the last answer."""
    times = []
    for _ in range(1_000):
        done = trio.Event()
        left = group

        def answered(_: bool) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()  # noqa: B023 - called within this round of the loop

        began = time.perf_counter()
        for _ in range(group):
            store.when_durable(store.put(draft(128)).end_offset, answered)
        store.dispatch()
        await done.wait()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] * 1e6


async def hops(directory: str) -> None:
    disk = Disk()
    path = Path(directory) / "hops"
    handle = disk.open(path, create=True)
    disk.fill(handle, 1 << 20)

    def sync() -> None:
        handle.pwrite(b"x", 0)
        disk.sync(handle)

    thread = SyncThread()
    thread.start()
    row("a sync in place", median(sync))
    for turn in ("first", "again"):
        row(f"a sync by the sync thread, {turn}", await median_async(thread, sync))
        row(f"a sync by trio.to_thread, {turn}", await median_async(None, sync))
    thread.stop()
    handle.close()


def median(work: Callable[[], None]) -> float:
    times = []
    for _ in range(1_000):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return sorted(times)[500] * 1e6


async def median_async(thread: SyncThread | None, work: Callable[[], None]) -> float:
    times = []
    for _ in range(1_000):
        began = time.perf_counter()
        if thread is None:
            await trio.to_thread.run_sync(work)
        else:
            done = trio.Event()
            thread.submit(work, lambda _, done=done: done.set())  # type: ignore[misc]  # a default binds the event
            await done.wait()
        times.append(time.perf_counter() - began)
    return sorted(times)[500] * 1e6


def row(name: str, microseconds: float) -> None:
    print(f"{name:<50} {microseconds:>10.2f} µs")


@program
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.append")
    parser.add_argument("directory", type=existing_directory, nargs="?")
    place = parser.parse_args().directory
    print(f"append · {platform.machine()} · Python {platform.python_version()}")
    for part in (puts, durable, hops):
        with tempfile.TemporaryDirectory(dir=place) as directory:
            trio.run(part, directory)


if __name__ == "__main__":
    main()
