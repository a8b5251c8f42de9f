"""Counts the messages and bytes of a store directory, by topic and queue. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.tools.directory import opened
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.tools.directory import Directory


class QueueStats(msgspec.Struct):
    """The messages of one queue in the log; half messages are only counted."""

    topic: str
    queue_id: int
    messages: int = 0
    bytes: int = 0
    half_messages: int = 0
    min_queue_offset: int | None = None
    max_queue_offset: int | None = None
    """The queue offset of the last message, not the next one."""
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0


class StoreSummary(msgspec.Struct):
    """The summary of a directory; times in ms since 1970."""

    path: str
    live: bool = False
    clean_stop: bool = False
    segments: int = 0
    segment_bytes: int = 0
    min_offset: int = 0
    end_offset: int = 0
    queue_files: int = 0
    messages: int = 0
    record_bytes: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0
    sizes: dict[int, int] = msgspec.field(default_factory=dict)
    """Intact records by size: a power of two → how many are at most so large, above its half."""
    queues: list[QueueStats] = msgspec.field(default_factory=list)
    unreadable_bytes: int = 0
    notes: list[str] = msgspec.field(default_factory=list)


def summarise(
    root: Path,
    *,
    log: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> StoreSummary:
    """Count everything below `root`; `progress` is called with the bytes done and in total.

    Bodies are not read, so damage in them is not found. Raises: StoreRefused, OSError.
    """
    findings = Findings()
    summary = StoreSummary(str(root))
    with opened(root, findings, log) as directory:
        _describe(summary, directory)
        total = sum(file.size for file in directory.log.queue.files)
        passage = Passage(
            directory,
            findings,
            crc=False,
            progress=lambda at: progress(at - summary.min_offset, total),
        )
        _count(summary, passage)
        summary.end_offset = passage.end
        summary.unreadable_bytes = sum(end - begin for begin, end in passage.regions)
    summary.notes = [f"{note.place}: {note.text}" for note in findings.notes]
    if findings.counts:
        summary.notes.append("there is damage: see `aerobee store verify`")
    return summary


def _describe(summary: StoreSummary, directory: Directory) -> None:
    summary.live, summary.clean_stop = directory.live, directory.clean
    summary.segments = len(directory.log.queue.files)
    summary.segment_bytes = directory.log.segment_bytes
    summary.min_offset = directory.log.min_offset
    summary.queue_files = sum(len(queue.starts) for queue in directory.queues.values())


def _count(summary: StoreSummary, passage: Passage) -> None:
    queues: dict[tuple[str, int], QueueStats] = {}
    sizes: dict[int, int] = {}
    for _, header in passage:
        key = header.topic, header.queue_id
        size, stored, queue_offset = header.size, header.store_timestamp, header.queue_offset
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = QueueStats(*key, first_store_timestamp=stored)
        bits = (size - 1).bit_length()
        sizes[bits] = sizes.get(bits, 0) + 1
        queue.bytes += size
        queue.last_store_timestamp = stored
        if header.sys_flag & NOT_QUEUED:
            queue.half_messages += 1
            continue
        queue.messages += 1
        queue.max_queue_offset = queue_offset
        if queue.min_queue_offset is None or queue_offset < queue.min_queue_offset:
            queue.min_queue_offset = queue_offset
    summary.queues = [queues[key] for key in sorted(queues)]
    summary.sizes = {1 << bits: sizes[bits] for bits in sorted(sizes)}
    summary.messages = sum(sizes.values())
    summary.record_bytes = sum(queue.bytes for queue in summary.queues)
    if summary.queues:
        summary.first_store_timestamp = min(q.first_store_timestamp for q in summary.queues)
        summary.last_store_timestamp = max(q.last_store_timestamp for q in summary.queues)
