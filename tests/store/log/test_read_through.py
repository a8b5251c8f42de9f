"""The log read through in the background: what is whole passes, the first wrong byte is told."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

import pytest
import trio

from aerobee.store.errors import Unreadable
from aerobee.store.files.disk import Disk
from aerobee.store.format.faults import BAD_SIZE, CRC, HOLE
from aerobee.store.log.read_through import PIECE_BYTES, LogDamage, LogReadThrough
from aerobee.store.message_store import MessageStore
from tests.kit.store_model import ManualClock, Sent, StoreModel, small_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Handle

SEGMENT_BYTES: Final = 1 << 20
LARGE: Final = b"L" * (PIECE_BYTES + 1)
"""A body that needs more than a piece."""


def filled(root: Path) -> StoreModel:
    model = StoreModel(root, mapped_file_size_commit_log_bytes=SEGMENT_BYTES)
    for number in range(40):
        body = LARGE if number % 8 == 0 else bytes([number]) * 20_000
        model.put("T", number % 2, Sent(body, b"TAGS\x01A\x02"))
    return model


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with several segments that was stopped cleanly."""
    assert trio.run(filled(tmp_path / "d").store.close)
    return tmp_path / "d"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    config = small_config(root, mapped_file_size_commit_log_bytes=SEGMENT_BYTES)
    store = MessageStore(config, disk=Disk(), clock=ManualClock())
    store.load()
    yield store
    store.let_go()


def segments(store: MessageStore) -> list[Path]:
    found = [file.path for file in store.commit_log.queue.files]
    assert len(found) >= 3
    return found


def read_through(
    store: MessageStore, disk: Disk | None = None
) -> tuple[LogReadThrough, list[LogDamage]]:
    """One pass, and what was told of it."""
    told: list[LogDamage] = []
    disk = disk or Disk()
    reading = LogReadThrough(
        disk, store.commit_log, when_damaged=told.append, rate_bytes=1 << 40, again_s=3_600
    )

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(reading.run)
                while not reading.passes and not told:  # noqa: ASYNC110  (nothing signals it)
                    await trio.sleep(0.001)
                nursery.cancel_scope.cancel()

    trio.run(run)
    return reading, told


def test_a_whole_log_is_read_to_its_end(store: MessageStore) -> None:
    reading, told = read_through(store)
    end = store.commit_log.max_offset
    assert (told, reading.damage, reading.passes) == ([], None, 1)
    assert (reading.position, reading.end) == (end, end)


def test_a_bit_that_flipped_in_an_old_segment_is_found(store: MessageStore) -> None:
    path = segments(store)[1]
    data = bytearray(path.read_bytes())
    at = data.index(bytes([20]) * 100)
    data[at + 50] ^= 1
    path.write_bytes(data)
    reading, told = read_through(store)
    assert told == [reading.damage]
    assert (told[0].kind, told[0].path, reading.passes) == (CRC, str(path), 0)
    assert SEGMENT_BYTES <= told[0].physical_offset <= SEGMENT_BYTES + at


def test_behind_a_sector_that_cannot_be_read_the_next_segments_are(store: MessageStore) -> None:
    first, second, *_ = segments(store)
    data = bytearray(second.read_bytes())
    at = data.index(bytes([20]) * 100)
    data[at + 50] ^= 1
    second.write_bytes(data)

    class Worn(Disk):
        def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
            if path == first:
                raise Unreadable(errno.EIO, "bad sector", str(path))
            return super().open(path, create=create, writable=writable)

    reading, [damage] = read_through(store, Worn())
    assert (damage.kind, damage.path, reading.passes) == (CRC, str(second), 0)


def test_a_segment_that_is_short_or_gone_is_damage(store: MessageStore) -> None:
    path = segments(store)[1]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    _, [damage] = read_through(store)
    assert (damage.kind, damage.path) == (BAD_SIZE, str(path))
    path.unlink()
    _, [damage] = read_through(store)
    assert damage == LogDamage(SEGMENT_BYTES, HOLE, str(path))
    path.write_bytes(data)
    assert read_through(store)[1] == []


def test_what_is_deleted_as_too_old_meanwhile_is_no_damage(store: MessageStore) -> None:
    told: list[LogDamage] = []
    reading = LogReadThrough(
        Disk(), store.commit_log, when_damaged=told.append, rate_bytes=PIECE_BYTES, again_s=3_600
    )

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(reading.run)
                while not reading.position:  # noqa: ASYNC110  (nothing signals it)
                    await trio.sleep(0.001)
                store.commit_log.queue.take_first().path.unlink()
                while not reading.passes and not told:  # noqa: ASYNC110  (as above)
                    await trio.sleep(0.001)
                nursery.cancel_scope.cancel()

    trio.run(run)
    assert not told
    assert reading.position == store.commit_log.max_offset


def test_a_segment_that_is_deleted_while_a_thread_has_it_open_is_no_damage(
    store: MessageStore,
) -> None:
    """Its blocks are freed piece by piece as soon as its name is gone."""
    first = segments(store)[0]

    class Freed(Disk):
        def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
            handle = super().open(path, create=create, writable=writable)
            if path == first:
                store.commit_log.queue.take_first()
                os.truncate(path, 100)
                path.unlink()
            return handle

    told: list[LogDamage] = []
    reading = LogReadThrough(
        Freed(), store.commit_log, when_damaged=told.append, rate_bytes=1 << 40, again_s=3_600
    )

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                await nursery.start(reading.run)
                while not reading.passes and not told:  # noqa: ASYNC110  (nothing signals it)
                    await trio.sleep(0.001)
                nursery.cancel_scope.cancel()

    trio.run(run)
    assert not told
    assert reading.position == store.commit_log.max_offset
