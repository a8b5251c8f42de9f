"""Reads the whole log through in the background, at a bounded rate, and checks each record.

A start reads the newest records only, and a slave checks what arrives. A bit that flips later in an
old segment is found by the next reader of that message, or here. One pass takes what was on disk
when it began, but for the rest of a segment behind what the disk cannot read; the next one begins a
day later. Reads go past the mapped segments, in pieces, in a
thread: no round waits for a cold page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import structlog
import trio

from aerobee.store.errors import Unreadable
from aerobee.store.format.faults import BAD_SIZE, BLANK, END, HOLE, MORE, Stop
from aerobee.store.format.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.files.disk import Disk
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.log.commit_log import CommitLog

PIECE_BYTES: Final = 256 << 10
RATE_BYTES: Final = 8 << 20
"""So many bytes of the log are read in a second: 100 GiB take three and a half hours."""
AGAIN_S: Final = 86_400.0
"""The pause between two passes."""
RUN_RECORDS: Final = 256

log = structlog.get_logger(__name__)


class LogDamage(NamedTuple):
    """The first record that a pass could not read."""

    physical_offset: int
    kind: str
    path: str


class LogReadThrough:
    """The service. `when_damaged` is called once, with the first record that cannot be read."""

    def __init__(
        self,
        disk: Disk,
        commit_log: CommitLog,
        *,
        when_damaged: Callable[[LogDamage], None],
        rate_bytes: int = RATE_BYTES,
        again_s: float = AGAIN_S,
    ) -> None:
        self._disk = disk
        self._log = commit_log
        self._when_damaged = when_damaged
        self._pause_s = PIECE_BYTES / rate_bytes
        self._again_s = again_s
        self.position = 0
        """The present pass has read the log up to there."""
        self.end = 0
        """The end of the present pass."""
        self.passes = 0
        """So many have come to their end."""
        self.damage: LogDamage | None = None
        """For the life of this process: what is mended is another directory."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Read until cancelled; once there is damage, no more."""
        task_status.started()
        while True:
            try:
                await self._pass()
            except OSError as error:
                # A disk that cannot read is not a record that is wrong: the next pass tries again.
                log.warning("store.not_read_through", reason=str(error))
            if self.damage is not None:
                await trio.sleep_forever()
            await trio.sleep(self._again_s)

    async def _pass(self) -> None:
        """Read from the first record to where the log on disk ends now. Raises: OSError."""
        self.position, self.end = self._log.min_offset, self._log.flushed
        whole = True
        while self.position < self.end:
            file = self._log.queue.find(self.position)
            if file is None:
                if self.position >= self._log.min_offset:
                    return
                # Deleted meanwhile, as it was too old.
                self.position = self._log.min_offset
                continue
            try:
                stop = await self._disk.in_thread(self._read, file, self.position, PIECE_BYTES)
            except FileNotFoundError:
                stop = Stop(HOLE, file.start)
            except Unreadable as error:
                # A bad sector is no wrong record. Nobody knows where the next one begins.
                log.warning("store.not_read_through", reason=str(error))
                whole, stop = False, Stop(BLANK, self.position)
            if self._log.queue.find(file.start) is not file:
                # Deleted meanwhile: it is not there, or shorter than it was.
                self.position = file.end
                continue
            if not self._goes_on(file, stop):
                return
            await trio.sleep(self._pause_s)
        if whole:
            self.passes += 1
            log.info("store.read_through", end_offset=self.end)

    def _goes_on(self, file: MappedFile, stop: Stop) -> bool:
        """Take in where a piece stopped; False: there is a record that cannot be read."""
        if stop.kind == BLANK:
            self.position = file.end
        elif stop.kind in (END, MORE):
            self.position = stop.physical_offset
        else:
            self.damage = LogDamage(stop.physical_offset, stop.kind, str(file.path))
            self._when_damaged(self.damage)
            return False
        return True

    def _read(self, file: MappedFile, begin: int, size: int) -> Stop:
        """Check the records of a piece, one at least; in a thread. Raises: OSError."""
        with self._disk.open(file.path, writable=False) as handle:
            while True:
                length = min(size, file.end - begin)
                data = handle.pread(length, begin - file.start)
                until = min(begin + len(data), self.end)
                walk = Walk(data, begin, begin, until, segment_end=file.end, crc=True)
                for _ in walk.runs(RUN_RECORDS):
                    pass
                stop = walk.stop
                if stop.kind != MORE or stop.physical_offset > begin:
                    return stop
                if len(data) < length or stop.size <= length:
                    # The file is shorter than it was made.
                    return Stop(BAD_SIZE, begin)
                size = stop.size
