"""Verifies a store directory. Read-only.

It checks names and sizes of files; the length, magic code, physical offset, body CRC and impossible
fields of each record (values that are only unusual, such as NUL bytes in a text, are noted: a
client may have sent them); the blanks at the end of segments; that queue offsets have no gaps; that
consume queues and log agree, including tags codes; that the checkpoint is not ahead of the log;
that index files are consistent and point to messages with the same keys; that configuration files
are readable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.store.format.faults import BAD_SIZE, BEGIN, HOLE, QUEUE_GAP, TAIL
from aerobee.store.format.names import (
    CONFIG,
    LAST_STOP,
    TIMER_CHECK,
    TIMER_LOG,
    backup_name,
    segment_start,
)
from aerobee.store.format.queue_reader import Queue
from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT
from aerobee.store.recovery.last_stop import LastStopFile
from aerobee.store.recovery.start_check import lost_tables
from aerobee.store.timers.timer_check import TimerCheckFile
from aerobee.store.tools.directory import opened
from aerobee.store.tools.fields import FieldCheck
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.index import IndexCheck
from aerobee.store.tools.locations import ELSEWHERE
from aerobee.store.tools.passage import Passage
from aerobee.store.tools.units import COMPARE_BYTES, Expectation, QueueCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aerobee.store.format.record import RecordHeader
    from aerobee.store.tools.directory import Directory

    ReadJson = Callable[[bytes], Any]

NAMED_TABLES = {
    "topics.json": ("topicConfigTable", "topicName"),
    "subscriptionGroup.json": ("subscriptionGroupTable", "groupName"),
}
"""Files whose entries repeat their key as a field."""
METRICS = ("timermetrics", "transactionMetrics")
"""JSON files without the suffix `.json`."""
LIGHT_MESSAGE_QUEUES = "%LMQ%"
"""The prefix of light queues of 5.x, whose units point to messages of other topics."""
_pack = UNIT.pack


class Verification(Findings):
    """The result of a verification: counts of what was checked, and findings."""

    path: str = ""
    log_path: str = ""
    """The directory of the log."""
    live: bool = False
    clean_stop: bool = False
    segments: int = 0
    queues: int = 0
    messages: int = 0
    log_bytes: int = 0
    min_offset: int = 0
    end_offset: int = 0
    safe_end: int = 0
    """A start does not look at the log in front of this physical offset, unless it builds queues
    again."""
    lost_messages: int = 0
    """Units that point into unreadable regions of the log, or behind its end."""
    last_store_timestamp: int = 0
    index_files: int = 0
    index_entries: int = 0
    """Entries of the checked index files."""

    @property
    def sound(self) -> bool:
        """Whether there is no damage."""
        return not self.counts


def verify(
    root: Path,
    *,
    log: Path | None = None,
    read_json: ReadJson = msgspec.json.decode,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Verification:
    """Verify everything below `root`; `progress` is called with the bytes done and in total.

    `log` is the directory of the log where it is not in `root`.

    `read_json` raises ValueError for a damaged configuration. Raises: StoreRefused for a directory
    that is no supported store, OSError.
    """
    result = Verification(path=str(root))
    with opened(root, result, log) as directory:
        _Run(directory, result, read_json, progress).run()
    return result


class _Run:
    def __init__(
        self,
        directory: Directory,
        verification: Verification,
        read_json: ReadJson,
        progress: Callable[[int, int], None],
    ) -> None:
        self.directory = directory
        self.found = verification
        self.read_json = read_json
        self.topics: Mapping[str, Any] | None = None
        last_stop = LastStopFile(directory.disk, directory.root / LAST_STOP)
        self.stop = last_stop.load() if directory.clean else None
        total = sum(file.size for file in directory.log.queue.files)
        self.passage = Passage(
            directory,
            verification,
            closer=FieldCheck(verification),
            progress=lambda at: progress(at - self.passage.begin, total),
        )
        settled = directory.clean
        self.rules = Expectation(
            self.passage.begin,
            self._unreadable,
            settled=settled,
            extended=directory.disk.exists(directory.root / "consumequeue_ext"),
        )
        self.checks: dict[tuple[str, int], QueueCheck] = {}
        self.behind = 0
        """Units that lead behind the end of the log."""

    def run(self) -> None:
        """Run all checks, causes before consequences."""
        verification, directory = self.found, self.directory
        verification.live, verification.clean_stop = directory.live, directory.clean
        verification.log_path = str(directory.log.queue.directory)
        verification.segments = len(directory.log.queue.files)
        verification.min_offset = self.passage.begin
        self._read_config()
        self._walk()
        verification.end_offset = self.passage.end
        self._finish_queues()
        self._check_reach()
        self._check_end()
        self._check_checkpoint()
        self._check_indexes()
        self._check_timers()

    def _unreadable(self, physical_offset: int) -> bool:
        return any(begin <= physical_offset < end for begin, end in self.passage.regions)

    # ── The log ──

    def _walk(self) -> None:
        """Check all records. Hot: millions of records per GiB."""
        checks, verification = self.checks, self.found
        safe_until = self.directory.checkpoint.min_timestamp
        messages = log_bytes = last = position = 0
        rules = self.rules
        for position, header in self.passage:
            size, stored, properties = header.size, header.store_timestamp, header.properties
            messages += 1
            log_bytes += size
            if stored > last:
                last = stored
                if stored > safe_until and rules.unsafe_from is None:
                    rules.unsafe_from = position
            if b"\0" in properties or not properties.isascii():
                self._check_text(position, header)
            if header.sys_flag & NOT_QUEUED:
                continue
            topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
            check = checks.get((topic, queue_id)) or self._new_check(topic, queue_id)
            if queue_offset != check.next:
                check.jump(queue_offset, position)
            check.next += 1
            check.expected += _pack(position, size, tags_code_of(properties))
            if len(check.expected) >= COMPARE_BYTES:
                check.compare()
        verification.messages, verification.log_bytes, verification.last_store_timestamp = (
            messages,
            log_bytes,
            last,
        )
        verification.safe_end = position if self.directory.clean else self.directory.safe_end

    def _new_check(self, topic: str, queue_id: int) -> QueueCheck:
        directory = self.directory
        queue = directory.queues.get((topic, queue_id)) or Queue(topic, queue_id)
        check = self.checks[topic, queue_id] = QueueCheck(queue, directory.reader, self.rules)
        return check

    def _check_text(self, position: int, header: RecordHeader) -> None:
        try:
            wrong = "NUL bytes" if 0 in header.properties else ""
            header.properties.decode()
        except UnicodeDecodeError:
            wrong = wrong or "bytes that are no UTF-8"
        if wrong:
            place = f"{header.topic}-{header.queue_id}"
            self.found.doubted("text", place, f"properties hold {wrong}", position)

    def _check_reach(self) -> None:
        """Report a log that lacks its begin, its end, or all of it.

        A start refuses the last two. A missing segment is a hole, which only a copy mends.
        """
        if self.directory.live:
            return
        files, end, stop = self.passage.files, self.passage.end, self.stop
        if files and stop and self.directory.ours and stop.log_begin < files[0].start:
            path = self.directory.log.queue.path_of(stop.log_begin)
            text = f"is missing: the log began there when it was closed, now at {files[0].start}"
            self.found.damaged(BEGIN, path, text)
        directory = self.directory.log.queue.directory
        reach = self._known_reach()
        if not files:
            if reach is not None:
                self.found.damaged(
                    HOLE, directory, f"holds no segment, but {reach[1]}; {ELSEWHERE}"
                )
        elif reach is not None and reach[0] > files[-1].end:
            path = self.directory.log.queue.path_of(files[-1].end)
            self.found.damaged(HOLE, path, f"is missing at the end of the log: {reach[1]}")
        elif self.directory.safe_end > end:
            text = f"no message, but the log was on disk up to {self.directory.safe_end}"
            self.found.damaged(BAD_SIZE, files[-1].path, text, end)

    def _known_reach(self) -> tuple[int, str] | None:
        """How far the log went at least, and how that is known; None: nothing says so.

        A single unit may itself be wrong, so two of them count.
        """
        farthest, safe, stop = self.rules.farthest, self.directory.safe_end, self.stop
        if farthest >= 0 and (self.behind > 1 or not self.passage.files):
            return farthest + 1, f"consume queues lead to messages up to the one at {farthest}"
        if safe:
            return safe, f"it was on disk up to {safe}"
        if self.passage.files:
            return None
        if stop is not None and stop.log_end:
            return stop.log_end, f"it went up to {stop.log_end} when it was closed"
        if any(self.directory.checkpoint[:3]):
            return 0, "`checkpoint` knows of stored messages"
        return None

    def _check_end(self) -> None:
        if not self.passage.remains:
            return
        place = self.directory.log.queue.path_of(self.passage.files[-1].start)
        text = f"{self.passage.remains} bytes behind the last message are none of it"
        if self.directory.live:
            text += ": they are being written"
        elif not self.directory.clean:
            text += ": the next start cuts them off"
        self.found.noted(TAIL, place, text, self.passage.end)

    # ── Queues ──

    def _finish_queues(self) -> None:
        verification = self.found
        pending = 0
        for key in self.directory.queues:
            if key not in self.checks:
                self._new_check(*key)
        verification.queues = len(self.checks)
        for (topic, queue_id), check in sorted(self.checks.items()):
            name = f"{topic}-{queue_id}"
            if topic.startswith(LIGHT_MESSAGE_QUEUES):
                verification.noted("skipped", name, "is a light queue: not compared with the log")
                continue
            check.compare()
            if not check.queue.starts and self._is_deleted(topic, queue_id, check.last):
                verification.noted("deleted", name, "messages of a topic that was deleted")
                continue
            check.finish(self.passage.end)
            self._report(name, check)
            pending += check.pending
            verification.lost_messages += check.lost + check.behind
            self.behind += check.behind
        if pending:
            verification.noted(
                "pending", "consumequeue", f"{pending} units are still to be written"
            )

    def _is_deleted(self, topic: str, queue_id: int, last: int) -> bool:
        """Whether the messages of a queue without files are from before a deletion of its topic.

        The topic may have been made again: then the last stop has named no message of the queue, or
        no queue is lost that had the message at `last`.
        """
        if self.topics is None:
            return False
        if topic not in self.topics:
            return True
        stop = self.stop
        if stop is None or stop.log_end != self.passage.end:
            return 0 <= last < self.directory.whole_until
        return queue_id not in stop.queues.get(topic, {})

    def _report(self, name: str, check: QueueCheck) -> None:
        if check.unnumbered:
            text = f"{check.unnumbered} messages have not the next number; first {check.broken}"
            self.found.damaged(QUEUE_GAP, name, text)
        for (kind, detail), seen in check.problems.items():
            units = f"{seen.count} units between {seen.first} and {seen.last}"
            where = f"queue offset {seen.first}" if seen.count == 1 else units
            self.found.damaged(kind, name, f"{where}: {detail}")
        if check.lost:
            self.found.damaged("lost", name, f"{check.lost} messages cannot be read")

    # ── The rest ──

    def _check_checkpoint(self) -> None:
        if self.directory.live or not self.passage.files:
            return
        checkpoint, last = self.directory.checkpoint, self.found.last_store_timestamp
        for field in ("physic_msg_timestamp", "logics_msg_timestamp"):
            if getattr(checkpoint, field) > last:
                text = f"{field} says {getattr(checkpoint, field)}, the last message is of {last}"
                self.found.damaged("checkpoint", self.directory.root / "checkpoint", text)

    def _check_indexes(self) -> None:
        check = IndexCheck(
            self.directory,
            self.found,
            begin=self.passage.begin,
            end=self.passage.end,
            unreadable=self._unreadable,
        )
        check.run()
        self.found.index_files, self.found.index_entries = check.files, check.entries

    def _check_timers(self) -> None:
        """Note a timer log that lacks files: a start reads its timers from the log again."""
        directory, place = self.directory, self.directory.root / TIMER_LOG
        check = TimerCheckFile(directory.disk, directory.root / CONFIG / TIMER_CHECK).load()
        if check is None or directory.live:
            return
        ends = [
            start + size
            for name, size in directory.sizes(str(place)).items()
            if (start := segment_start(name)) is not None
        ]
        if max(ends, default=0) < check.flushed_position:
            text = (
                f"ends in front of position {check.flushed_position}, which {TIMER_CHECK} vouches "
                "for: a start reads its timers from the log again, those delivered since too"
            )
            self.found.noted("timers", place, text)

    def _read_config(self) -> None:
        directory = self.directory
        for name in directory.disk.listdir(directory.root / CONFIG):
            path = directory.root / CONFIG / name
            original = name.removesuffix(backup_name(""))
            if not original.endswith(".json") and original not in METRICS:
                continue
            if directory.disk.is_directory(path):
                continue
            content = self._content(path)
            if content is None:
                self._report_unreadable(path, original)
            elif isinstance(content, dict) and original in NAMED_TABLES:
                self._check_names(path, content, *NAMED_TABLES[original])
                if name == "topics.json":
                    self.topics = content.get("topicConfigTable")
        for path in [] if directory.live else lost_tables(directory.disk, directory.root):
            text = "is missing or empty, and so is its .bak, though it was saved here"
            self.found.damaged("config", path, text)

    def _report_unreadable(self, path: Path, original: str) -> None:
        if path.name == original:
            other, which = path.with_name(backup_name(original)), "its .bak"
        else:
            other, which = path.with_name(original), "the file itself"
        hint = "can" if self._content(other) is not None else "cannot either"
        if self.directory.live:
            # Java's broker writes such a file in its place, so that it is not whole for a moment.
            self.found.noted(
                "live", path, f"cannot be read now, its broker may write it; {which} {hint}"
            )
            return
        self.found.damaged("config", path, f"cannot be read; {which} {hint}")

    def _check_names(self, path: Path, content: dict[str, Any], table: str, field: str) -> None:
        entries = content.get(table)
        if not isinstance(entries, dict):
            self.found.damaged("config", path, f"has no {table}")
            return
        for name, entry in entries.items():
            if not isinstance(entry, dict) or entry.get(field) != name:
                self.found.damaged("config", path, f"{table} entry {name} has another {field}")

    def _content(self, path: Path) -> Any:
        """The content of a JSON file; None if it cannot be read."""
        try:
            return self.read_json(self.directory.disk.read(path))
        except (ValueError, FileNotFoundError):
            return None
