"""Small stores of several segments and queues, and ways to damage them."""

from __future__ import annotations

import shutil
from random import Random
from typing import TYPE_CHECKING

import trio

from aerobee.store.files.disk import Disk
from aerobee.store.format import properties
from tests.kit.store_model import ManualClock, draft, flush_everything, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.message_store import MessageStore

MESSAGES = 60


def filled(root: Path, count: int = MESSAGES) -> MessageStore:
    """A loaded store with messages of two topics and four queues, all dispatched."""
    clock = ManualClock()
    store, _ = open_store(root, Disk(), clock)
    random = Random(7)
    for number in range(count):
        clock.ms += 1_000
        names = {"UNIQ_KEY": f"7F00{number:028d}", "TAGS": f"t{number % 5}", "KEYS": f"k{number}"}
        message = draft(
            f"T{number % 2}",
            number // 2 % 2,
            random.randbytes(1 + random.randrange(300)),
            properties.encode(names).encode(),
        )
        assert store.put(message).physical_offset >= 0
    store.dispatch()
    return store


def stopped(root: Path, count: int = MESSAGES) -> Path:
    """The directory of a store that was closed."""
    assert trio.run(filled(root, count).close)
    return root


def left_behind(root: Path, copy: Path) -> Path:
    """A copy of a directory in use: what a kill leaves, half of it promised by the checkpoint."""
    store = filled(root)
    flush_everything(store, Disk())
    clock = store.clock
    assert isinstance(clock, ManualClock)
    for number in range(20):
        clock.ms += 1_000
        assert store.put(draft("T0", 0, b"late %d" % number)).physical_offset >= 0
    store.dispatch()
    shutil.copytree(root, copy)
    assert trio.run(store.close)
    return copy


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turn one bit of a file over."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
