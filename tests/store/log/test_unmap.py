"""A log of many segments holds no more descriptors and mappings than one of a few."""

import os
from collections import Counter
from contextlib import suppress
from functools import partial
from mmap import mmap
from pathlib import Path

import pytest
import trio

from aerobee.store.files.disk import Disk, Handle
from aerobee.store.format.record import read
from aerobee.store.log.commit_log import MAPPED_SEGMENTS
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetStatus, PutStatus
from tests.kit.running_store import running_store
from tests.kit.store_model import draft, open_store

PER_SEGMENT = 4
SEGMENTS = 30
COUNT = SEGMENTS * PER_SEGMENT


def body(number: int) -> bytes:
    return b"%d".ljust(900) % number


async def fill(store: MessageStore) -> None:
    """So many segments, with time for what follows the log."""
    for number in range(COUNT):
        assert store.put(draft("T", 0, body(number))).status is PutStatus.PUT_OK
        if not number % PER_SEGMENT:
            store.dispatch()
            await store.flush_queues()
            await trio.sleep(0.11)
    store.dispatch()


async def read_all(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < COUNT:
        result = await store.complete(partial(store.get, "T", 0, len(found), 10))
        assert result.status is GetStatus.FOUND, (len(found), result.status)
        found += [bytes(read(one).body) for view in result.views for one in split(view)]
    return found


def split(view: memoryview) -> list[memoryview]:
    """The records that lie side by side in one view."""
    pieces = []
    while view:
        size = int.from_bytes(view[:4])
        pieces.append(view[:size])
        view = view[size:]
    return pieces


def opened(root: Path) -> Counter[str]:
    """Descriptors of the segments of a log, by name."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    inside = f"{root / 'commitlog'}/"
    return Counter(link.removeprefix(inside) for link in links if link.startswith(inside))


def mapped(root: Path) -> int:
    """Mappings of segments of a log."""
    return Path("/proc/self/maps").read_text().count(f"{root / 'commitlog'}/")


class FewFiles(Disk):
    """The process may have 128 descriptors, as far as it knows."""

    def descriptor_limit(self) -> int:
        return 128


@pytest.mark.trio
async def test_a_long_log_holds_few_descriptors_whatever_is_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    most = MAPPED_SEGMENTS + 1 + 128 // 16
    async with running_store(tmp_path, FewFiles()) as store:
        await fill(store)
        await trio.sleep(1)
        assert opened(tmp_path).total() <= MAPPED_SEGMENTS + 1, "the last has a handle as well"
        assert mapped(tmp_path) <= MAPPED_SEGMENTS
        assert await read_all(store) == [body(number) for number in range(COUNT)]
        await trio.sleep(1)
        assert opened(tmp_path).total() <= most
        assert mapped(tmp_path) <= MAPPED_SEGMENTS
        assert mapped(tmp_path) > 1, "what was just written is read through mappings"
    assert not opened(tmp_path)


@pytest.mark.trio
async def test_a_record_in_hand_stays_readable_when_its_segment_is_let_go(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        store.put(draft("T", 0, body(0)))
        store.dispatch()
        view = store.get("T", 0, 0, 1).views[0]
        first = store.commit_log.queue.files[0]
        for number in range(1, PER_SEGMENT * (MAPPED_SEGMENTS + 2)):
            store.put(draft("T", 0, body(number)))
        store.dispatch()
        await store.flush_queues()
        await trio.sleep(1)
        assert first.handle is None
        assert mapped(tmp_path) == MAPPED_SEGMENTS + 1, "only that view holds it"
        assert read(view).body == body(0)
        del view
        assert mapped(tmp_path) == MAPPED_SEGMENTS


def test_a_start_that_reads_the_whole_log_holds_few_as_well(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    for number in range(COUNT):
        store.put(draft("T", 0, body(number)))
    store.dispatch()
    assert trio.run(store.close)
    seen = 0

    class WatchedDisk(Disk):
        def map(self, handle: Handle, size: int, *, writable: bool) -> mmap:
            nonlocal seen
            seen = max(seen, opened(tmp_path).total())
            return super().map(handle, size, writable=writable)

    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    again, recovery = open_store(tmp_path, WatchedDisk())
    assert again.max_offset("T", 0) == COUNT, recovery
    assert 0 < seen <= 6, seen
    assert trio.run(again.close)
