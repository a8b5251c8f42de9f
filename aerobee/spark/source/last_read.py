"""Whether the topics of a stream are still those that it has read: by its last messages.

A topic that is deleted and made anew begins at 0 again, and looks like the old one once it has as
many messages as were read. So a stream keeps with its offsets, for one queue of each topic and
broker, when the message in front of the offset was stored. It is one pull each time that a topic
goes on, and another one before the next batch:

    the same message is there                → the topic goes on
    none, or another one, and all are newer  → the topic was made anew
    another one, among older ones            → the broker lost its last messages, and got others

Where the message has expired, nothing is known and nothing decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.spark.source.plan import Loss, LossCause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.spark.offsets import Offsets, Queue
    from aerobee.spark.source.streaming import StreamCluster


class Changes(NamedTuple):
    """The differences between the topics and what was read of them."""

    renewed: Offsets
    """The queues of topics that were made anew, and where they begin: at 0."""
    losses: list[Loss]
    """The same as losses, and the messages that others took the places of."""


class LastRead:
    """The last messages of one stream. Times are those of the store, in ms since the epoch."""

    def __init__(self, at: StreamCluster) -> None:
        self._at = at
        self._asked: dict[Queue, tuple[int, int | None]] = {}
        """Offsets whose message was asked for because no time came with them, and its time."""

    def known(self, begin: Mapping[Queue, int], kept: Offsets) -> Offsets:
        """The times that came with the offsets, and those of topics and brokers without one.

        There are none with the first offsets of a stream, nor in a checkpoint of builds before.
        """
        covered = {queue[:2] for queue in kept}
        some = {q[:2]: q for q in self._at.routed if begin.get(q) and q[:2] not in covered}
        wanted = {queue: begin[queue] for queue in some.values()}
        new = {q: at for q, at in wanted.items() if self._asked.get(q, (None,))[0] != at}
        stored = self._at.stored_ms({queue: at - 1 for queue, at in new.items()})
        self._asked |= {queue: (at, stored.get(queue)) for queue, at in new.items()}
        times = {queue: self._asked[queue][1] for queue in wanted}
        return {**kept, **{queue: ms for queue, ms in times.items() if ms is not None}}

    def changed(
        self, begin: Mapping[Queue, int], latest: Mapping[Queue, int], times: Offsets
    ) -> Changes:
        """Compare what is to be read on with what was read before `begin`."""
        moved = {queue[:2] for queue, end in latest.items() if end != begin.get(queue, 0)}
        there = {queue for queue in self._at.routed if queue[:2] in moved}
        places = {queue: begin[queue] - 1 for queue in times if queue in there}
        changes = Changes({}, [])
        for queue, ms in self._at.stored_ms(places).items():
            if ms == times[queue]:
                continue
            if self._is_new(queue, times[queue], begin[queue], latest):
                its = {q: at for q, at in begin.items() if at and q[:2] == queue[:2]}
                changes.renewed.update(dict.fromkeys(its, 0))
                changes.losses.extend(Loss(q, 0, at, LossCause.RENEWED) for q, at in its.items())
            elif ms is not None:
                place = begin[queue]
                changes.losses.append(Loss(queue, place - 1, place, LossCause.REWRITTEN))
        return changes

    def _is_new(self, queue: Queue, read_ms: int, at: int, latest: Mapping[Queue, int]) -> bool:
        """Whether all that is there of the topic of this queue is newer than what was read.

        `at` is the offset in the queue. The oldest messages of all queues of the topic and broker
        decide: one queue may have lost all of its messages, or have got others in their places.
        """
        its = [q for q in self._at.routed if q[:2] == queue[:2]]
        first = self._at.asked(its, self._at.cluster.min_offsets)
        if first.get(queue, at) >= at:
            return False
        oldest = self._at.stored_ms(first)
        if len(oldest) < len(its) or (oldest[queue] is None and latest.get(queue, at) >= at):
            return False
        return all(ms is None or ms > read_ms for ms in oldest.values())

    def times(
        self, begin: Mapping[Queue, int], end: Mapping[Queue, int], before: Offsets
    ) -> Offsets:
        """The times for the end of a batch; of what stays where it is, those of `before`."""
        moved = [queue for queue, to in end.items() if to != begin.get(queue, 0) and to]
        # The first of several: a topic with fewer queues has it, too.
        new = {q: end[q] - 1 for q in {q[:2]: q for q in reversed(moved)}.values()}
        stored = {queue: ms for queue, ms in self._at.stored_ms(new).items() if ms is not None}
        done = {queue[:2] for queue in stored}
        kept = {q: ms for q, ms in before.items() if q[:2] not in done and end.get(q) == begin[q]}
        return stored | kept
