"""Readers see the units that were appended, and those only, whatever was kept of them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from aerobee.store.errors import NotInMemory, Piece
from aerobee.store.files.disk import Disk
from aerobee.store.files.open_files import OpenFiles
from aerobee.store.format.unit import UNIT, UNIT_SIZE
from aerobee.store.queues.consume_queue import ConsumeQueue
from aerobee.store.queues.unit_cache import BLOCK_BYTES, BLOCKS_MAX, UnitCache
from aerobee.store.results import UnitStatus

if TYPE_CHECKING:
    from pathlib import Path

PER_BLOCK = BLOCK_BYTES // UNIT_SIZE
STEPS = 300


class Readers:
    """Two queues that share a cache, beside the units that were appended to each."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory = directory
        self.random = random
        self.disk = Disk()
        self.open = OpenFiles(self.disk)
        self.cache = UnitCache()
        sizes = (PER_BLOCK - 1, PER_BLOCK, 2 * PER_BLOCK + 3, 3 * PER_BLOCK, 5_000)
        self.per_file = random.choice(sizes)
        self.made = 0
        self.queues = [self.new() for _ in range(2)]
        self.known: set[Piece] = set()

    def new(self) -> tuple[ConsumeQueue, dict[int, tuple[int, int, int]]]:
        """An empty queue, in a directory of its own."""
        self.made += 1
        directory = self.directory / "T" / str(self.made)
        size = self.per_file * UNIT_SIZE
        queue = ConsumeQueue("T", self.made, directory, size, self.disk, self.open, self.cache)
        queue.load()
        if first := self.random.choice((0, 0, 7, PER_BLOCK, 3 * PER_BLOCK + 1)):
            queue.begin_at(first)
        return queue, {}

    def append(self, queue: ConsumeQueue, units: dict[int, tuple[int, int, int]]) -> None:
        for _ in range(self.random.choice((1, 3, 50, PER_BLOCK, 3 * PER_BLOCK))):
            unit = (max(queue.max_physical_offset, 0), self.random.randrange(1, 500), self.made)
            units[queue.end_offset] = unit
            assert queue.append(queue.end_offset, *unit) is UnitStatus.ADDED

    def write(self, queue: ConsumeQueue) -> None:
        """As the flush service does; it may end after any file."""
        writes = queue.take_writes()
        for piece in writes[: self.random.randrange(1, 4)]:
            self.disk.mkdir(piece.path.parent)
            if piece.creates:
                data = piece.blanks() + piece.data
                self.disk.create(piece.path, queue.file_size, data).close()
            else:
                with self.disk.open(piece.path) as handle:
                    handle.pwrite(piece.data, piece.position)
            queue.mark_written(piece)
        if self.random.random() < 0.5:
            queue.mark_synced(queue.written)

    def expire(self, queue: ConsumeQueue) -> None:
        if queue.end_offset > queue.min_offset:
            queue.min_offset = self.random.randrange(queue.min_offset, queue.end_offset)
        for path in queue.take_expired():
            self.open.forget(path)
            self.disk.remove(path)

    def replace(self, index: int) -> None:
        """As a topic that is deleted and made again, in the same place."""
        queue, _ = self.queues[index]
        for path in queue.take_all():
            self.open.forget(path)
            self.disk.remove(path)
        self.queues[index] = self.new()

    def from_disk(self, files: OpenFiles, path: Path, position: int, size: int) -> bytes:
        """As a cold read: now and then not in memory, and there the next time."""
        piece = Piece(path, position, size)
        if piece not in self.known and self.random.random() < 0.3:
            self.known.add(piece)
            raise NotInMemory((piece,))
        return files.get(path).pread(size, position)

    def read(self, queue: ConsumeQueue, units: dict[int, tuple[int, int, int]]) -> None:
        if queue.end_offset == queue.min_offset:
            return
        first = self.random.randrange(queue.min_offset, queue.end_offset)
        count = self.random.choice((1, 7, 32, PER_BLOCK, PER_BLOCK + 1, 800))
        self.known.clear()
        while True:
            try:
                data = queue.units(first, count, self.from_disk)
                break
            except NotInMemory:
                continue
        file_end = first - first % self.per_file + self.per_file
        wanted = range(first, min(first + count, file_end, queue.end_offset))
        assert list(UNIT.iter_unpack(data)) == [units[number] for number in wanted]


@pytest.mark.parametrize("seed", range(12))
def test_readers_see_what_was_appended(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    readers = Readers(tmp_path, random)
    for _ in range(STEPS):
        index = random.randrange(2)
        queue, units = readers.queues[index]
        # As after a start: what was written is then read as what may be on disk.
        if random.random() < 0.5:
            queue.begun = queue.written
        what = random.random()
        if what < 0.15:
            readers.append(queue, units)
        elif what < 0.3:
            readers.write(queue)
        elif what < 0.35:
            readers.expire(queue)
        elif what < 0.36:
            readers.replace(index)
        else:
            readers.read(queue, units)
        assert len(readers.cache.kept) <= BLOCKS_MAX
