"""The wheel: one slot per step of time, each with the end of its chain in the timer log.

It is in memory, where only pages with timers take space, because slots are accessed at random and a
page on disk would block the loop. The file is an image: `take_dirty` returns in the loop which
blocks changed, `write` writes them, in a thread. A slot never crosses a sector, so a power cut
leaves each slot old or new.

Invariant: a slot is reused for another time only when it is empty. Source: store format §1.8
(TimerWheel).
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import TYPE_CHECKING, Final

from aerobee.store.errors import StoreDamaged
from aerobee.store.format.names import temporary_name
from aerobee.store.format.timer import TIMER_UNIT, WHEEL_SLOT, WheelSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.format.timer import TimerUnit

BLOCK_BYTES: Final = 4_096
RUN_BYTES: Final = 1 << 20
"""Adjacent blocks that are written in one call, at most."""
SLOT_BYTES: Final = WHEEL_SLOT.size
UNIT_BYTES: Final = TIMER_UNIT.size
_ZERO_SLOT: Final = bytes(SLOT_BYTES)
_EMPTY_SLOT: Final = WheelSlot(0, 0, 0, 0, 0)
_ZERO_BLOCK: Final = bytes(BLOCK_BYTES)
_STEP: Final = Struct(f">q{SLOT_BYTES - 8}x")
"""Reads of a slot only its time."""
_unpack = WHEEL_SLOT.unpack_from
_pack_into = WHEEL_SLOT.pack_into

Pieces = list[tuple[int, bytes]]


class TimerWheel:
    """Slots by time in ms, a multiple of the precision. For the loop, but for `write`."""

    __slots__ = ("_dirty", "_disk", "_memory", "_used", "path", "precision_ms", "slots")

    def __init__(self, disk: Disk, path: Path, *, precision_ms: int, slots: int) -> None:
        self._disk = disk
        self._memory = disk.memory(slots * SLOT_BYTES)
        self._dirty: set[int] = set()
        self._used: set[int] = set()
        """The blocks that hold chains: others are not read, since reading all takes 10 ms."""
        self.path = path
        self.precision_ms = precision_ms
        self.slots = slots

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return self.slots * SLOT_BYTES

    @property
    def turn_ms(self) -> int:
        """The times of one turn: those that are a turn apart share a slot."""
        return self.slots * self.precision_ms

    def slot(self, time_ms: int) -> WheelSlot | None:
        """The chain of that time; None when there is none. Hot."""
        step = time_ms // self.precision_ms
        slot = _unpack(self._memory, step % self.slots * SLOT_BYTES)
        return WheelSlot(*slot) if slot[0] == step else None

    def empty_to(self, time_ms: int, end_ms: int) -> int:
        """A later time up to which there is no chain from an empty slot's time on: at least the
        next slot, at most `end_ms`.
        """
        if not self._used:
            return end_ms
        step = time_ms // self.precision_ms
        row = step % self.slots
        per_block = BLOCK_BYTES // SLOT_BYTES
        rows = 1
        if row // per_block not in self._used:
            rows = min(per_block - row % per_block, self.slots - row)
        return min(end_ms, (step + rows) * self.precision_ms)

    def free_for(self, time_ms: int) -> bool:
        """Whether that time can have timers: its slot is not used for another time."""
        step = time_ms // self.precision_ms
        return _unpack(self._memory, step % self.slots * SLOT_BYTES)[0] in (0, step)

    def put(self, time_ms: int, first: int, last: int, count: int) -> None:
        """Set the chain of that time. Hot."""
        assert self.free_for(time_ms), (time_ms, self.slot(time_ms))
        step = time_ms // self.precision_ms
        at = step % self.slots * SLOT_BYTES
        _pack_into(self._memory, at, step, first, last, count, 0)
        block = at // BLOCK_BYTES
        self._dirty.add(block)
        self._used.add(block)

    def clear(self, time_ms: int) -> None:
        """Empty the slot of that time; pages without chains are freed."""
        at = time_ms // self.precision_ms % self.slots * SLOT_BYTES
        self._memory[at : at + SLOT_BYTES] = _ZERO_SLOT
        block = at // BLOCK_BYTES
        self._dirty.add(block)
        begin = block * BLOCK_BYTES
        if self.size - begin >= BLOCK_BYTES and (
            self._memory[begin : begin + BLOCK_BYTES] == _ZERO_BLOCK
        ):
            self._used.discard(block)
            self._memory.madvise(mmap.MADV_DONTNEED, begin, BLOCK_BYTES)

    def chains(self) -> Iterator[tuple[int, WheelSlot]]:
        """Every chain with its time in ms. The wheel must not change meanwhile."""
        for block in sorted(self._used):
            begin = block * BLOCK_BYTES
            for slot in WHEEL_SLOT.iter_unpack(self._memory[begin : begin + BLOCK_BYTES]):
                if slot[0]:
                    yield slot[0] * self.precision_ms, WheelSlot(*slot)

    def times(self) -> list[int]:
        """The time in ms of every chain, in no order: about 5 ms for two days of chains."""
        precision_ms = self.precision_ms
        times: list[int] = []
        for block in self._used:
            begin = block * BLOCK_BYTES
            piece = self._memory[begin : begin + BLOCK_BYTES]
            times += [step * precision_ms for (step,) in _STEP.iter_unpack(piece) if step]
        return times

    def count(self, begin_ms: int, end_ms: int) -> int:
        """Timers in the slots from one time up to another, at most those of one turn."""
        begin, end = begin_ms // self.precision_ms, end_ms // self.precision_ms
        begin = max(begin, end - self.slots)
        total = 0
        while begin < end:
            row = begin % self.slots
            rows = min(end - begin, self.slots - row, BLOCK_BYTES // SLOT_BYTES)
            part = self._memory[row * SLOT_BYTES : (row + rows) * SLOT_BYTES]
            if part.count(0) < len(part):
                steps = range(begin, begin + rows)
                total += sum(slot[3] for slot in WHEEL_SLOT.iter_unpack(part) if slot[0] in steps)
            begin += rows
        return total

    # ── The file ──

    def load(
        self,
        begin_ms: int,
        may_be_unit: Callable[[int], bool],
        unit: Callable[[int], TimerUnit | None],
    ) -> bool:
        """Take over the chains from that time on; False without a file that can be believed.

        Chains before it were delivered, and other brokers leave them in the file. `may_be_unit`
        says whether a unit can stand there in the timer log, `unit` reads it. Raises: StoreDamaged
        for a file of another length; OSError.
        """
        disk = self._disk
        disk.remove(self.path.with_name(temporary_name(self.path.name)), missing_ok=True)
        if not disk.exists(self.path):
            return False
        size = disk.size(self.path)
        if size != self.size:
            raise StoreDamaged(
                f"{self.path} has {size} bytes instead of {self.size}: move it away, it is made "
                "again from the timer log"
            )
        return all(
            self._take_over(at, piece, begin_ms, may_be_unit, unit) for at, piece in self._pieces()
        )

    def stored(self) -> Iterator[WheelSlot]:
        """Every slot of the file that was ever in use, delivered or not. Raises: OSError."""
        if self._disk.exists(self.path):
            for _, piece in self._pieces():
                if piece.count(0) < len(piece):
                    for slot in WHEEL_SLOT.iter_unpack(piece):
                        if slot[0]:
                            yield WheelSlot(*slot)

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """The parts of the file that may hold other bytes than zeros, each a row of slots."""
        with self._disk.open(self.path, writable=False) as handle:
            for first, last in list(handle.data_ranges(0, handle.size())):
                first -= first % BLOCK_BYTES
                for at in range(first, last, RUN_BYTES):
                    piece = handle.pread(min(RUN_BYTES, last - at), at)
                    yield at, piece[: len(piece) // SLOT_BYTES * SLOT_BYTES]

    def _take_over(
        self,
        at: int,
        piece: bytes,
        begin_ms: int,
        may_be_unit: Callable[[int], bool],
        unit: Callable[[int], TimerUnit | None],
    ) -> bool:
        """False at a slot that nobody has written so."""
        if piece.count(0) == len(piece):
            return True
        begin = begin_ms // self.precision_ms
        for row, slot in enumerate(WHEEL_SLOT.iter_unpack(piece), at // SLOT_BYTES):
            if slot == _EMPTY_SLOT:
                continue
            step, first, last, timers, _ = slot
            if step <= 0 or step % self.slots != row:
                return False
            if step < begin:
                # Empty here, so it is to be empty in the file as soon as its block is written.
                self._dirty.add(row * SLOT_BYTES // BLOCK_BYTES)
                continue
            # The rest of a chain may begin just behind a unit.
            chain = may_be_unit(last) and (may_be_unit(first) or may_be_unit(first - UNIT_BYTES))
            if not (chain and abs(timers) <= _room(first, last)):
                return False
            if step >= begin + self.slots:
                # Stored while the clock was ahead. So rare, and so unlikely, that a unit proves it.
                newest = unit(last)
                if newest is None or newest.due_ms != step * self.precision_ms:
                    return False
            _pack_into(self._memory, row * SLOT_BYTES, *slot)
            self._used.add(row * SLOT_BYTES // BLOCK_BYTES)
        return True

    def forget(self) -> None:
        """Begin anew: no chain, and no file. Raises: OSError."""
        for time_ms, _ in list(self.chains()):
            self.clear(time_ms)
        self._disk.remove(self.path, missing_ok=True)
        self._dirty.clear()

    @property
    def dirty(self) -> bool:
        """Whether the file is behind."""
        return bool(self._dirty)

    def take_dirty(self) -> Pieces:
        """The blocks changed since the last time, as positions and bytes, copied."""
        blocks = sorted(self._dirty)
        self._dirty.clear()
        pieces: Pieces = []
        begin = end = -1
        for block in blocks:
            at = block * BLOCK_BYTES
            if at != end or at - begin >= RUN_BYTES:
                if begin >= 0:
                    pieces.append((begin, self._memory[begin:end]))
                begin = at
            end = min(at + BLOCK_BYTES, self.size)
        if begin >= 0:
            pieces.append((begin, self._memory[begin:end]))
        return pieces

    def give_back(self, pieces: Pieces) -> None:
        """These did not reach the file: they are taken again."""
        for at, data in pieces:
            self._dirty.update(range(at // BLOCK_BYTES, -(-(at + len(data)) // BLOCK_BYTES)))

    def write(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Bring pieces into the file, which is made if need be. For a thread. Raises: OSError."""
        disk = self._disk
        if not disk.exists(self.path):
            self._make()
        with disk.open(self.path) as handle:
            for at, data in pieces:
                handle.pwrite(data, at)

    def _make(self) -> None:
        # Sparse: most of it stays zeros, and it is never written through a mapping.
        temporary = self.path.with_name(temporary_name(self.path.name))
        with self._disk.open(temporary, create=True) as handle:
            handle.truncate(0)
            handle.truncate(self.size)
            self._disk.sync(handle)
        self._disk.rename(temporary, self.path)
        self._disk.sync_directory(self.path.parent)

    def sync(self) -> None:
        """The file on disk. For a thread. Raises: OSError."""
        with self._disk.open(self.path) as handle:
            self._disk.sync(handle)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def _room(first: int, last: int) -> int:
    """How many units can stand from one position of the timer log to another; −1 for none."""
    return (last - first) // UNIT_BYTES + 1 if first <= last else -1
