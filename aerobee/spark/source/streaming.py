"""The cluster as a running stream sees it: what cannot be asked now is told, and waited for.

Routes that age, brokers that are down, topics that go: a query lives longer than all of them. What
was learned stays until something better is known, and the same trouble is told once a minute. A
stream that begins is strict: it would leave out what it does not see.
Source: spark §5.3.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError, SubscriptionError
from aerobee.spark.source.plan import Range
from aerobee.spark.source.positions import queues_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aerobee.errors import RouteNotFoundError
    from aerobee.spark.brokers import Cluster
    from aerobee.spark.offsets import Offsets, Queue
    from aerobee.spark.options import ReadOptions

__all__ = ["StreamCluster"]

log = logging.getLogger("aerobee.spark")

ROUTES_KEPT_S = 10.0
"""How old the list of queues may be when a batch is planned."""
COMPLAIN_EVERY_S = 60.0
"""How often the same trouble is told again while it lasts."""
SAMPLE_RECORDS = 32
"""How many records tell how large records are; one answer of any broker."""


class StreamCluster:
    """Queues, bounds and progress of one stream, in its driver. `clock` counts in seconds.

    Plain data: connections are those of the process, so that it can be pickled.
    """

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = monotonic) -> None:
        self.options = options
        self.clock = clock
        self.addresses: dict[Queue, tuple[str, ...]] = {}
        """Of all queues ever seen: one whose broker is down is still known."""
        self.routed: tuple[Queue, ...] = ()
        """The queues of the last route, sorted."""
        self._routed_at: float | None = None
        self._told: Offsets = {}
        self._told_of: dict[str, float] = {}
        self._mean_bytes: float | None = None
        self._sampled_at: float | None = None

    @property
    def cluster(self) -> Cluster:
        """The one of this process."""
        from aerobee.spark.brokers import cluster_of

        return cluster_of(self.options.name_servers, self.options.access)

    def look_up(self, *, strict: bool = False, anew: bool = False) -> bool:
        """Learn the queues again if what is known is old, or at once if `anew` or `strict` says so.

        Without `strict` what cannot be asked is told, and what was known stays: then it is False.
        """
        now = self.clock()
        old = self._routed_at is None or now - self._routed_at >= ROUTES_KEPT_S
        if not (old or strict or anew):
            return True
        try:
            found = queues_of(self.cluster, self.options, None if strict else self._gone)
        except AerobeeError as error:
            if strict:
                raise
            self._complain("queues", f"cannot be listed, the known ones stay: {error}")
            return False
        self.routed = tuple(found)
        self.addresses |= found
        self._routed_at = now
        return True

    def tell_of_missing(self, offsets: Iterable[Queue]) -> None:
        """Warn of queues that the stream has offsets of and that it cannot see now."""
        routed = set(self.routed)
        for topic, broker in sorted({queue[:2] for queue in offsets if queue not in routed}):
            of = f"queues of topic {topic} on broker {broker}"
            self._complain(
                of, "are in no route now, or not in the options; they stay where they are"
            )

    def _gone(self, topic: str, error: RouteNotFoundError) -> None:
        self._complain(f"topic {topic}", f"is not there now; the stream waits for it: {error}")

    def asked(
        self, queues: Iterable[Queue], ask: Callable[[list[Queue]], Mapping[Queue, int]]
    ) -> Offsets:
        """The answers of those brokers that answer; the others are told."""
        by_broker: dict[str, list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        answers: Offsets = {}
        for broker, asked in by_broker.items():
            try:
                answers |= ask(asked)
            except AerobeeError as error:
                self._complain(f"broker {broker}", f"does not tell its offsets: {error}")
        return answers

    def ends(self, queues: Iterable[Queue], begin: Mapping[Queue, int]) -> Offsets:
        """The ends of those queues that tell them; none that only seems to lie before `begin`.

        A topic that was deleted ends at 0 while its route is remembered, and a slave whose master
        is down may be behind.
        """
        found = self.asked(queues, self.cluster.max_offsets)
        if back := [queue for queue, end in found.items() if end < begin.get(queue, 0)]:
            known = set(self.routed) if self.look_up(anew=True) else set()
            for queue in back:
                if not self.cluster.has_master(queue):
                    of = f"the master of broker {queue.broker}"
                    self._complain(of, "is down and its slave is behind; the stream waits for it")
                if queue not in known or not self.cluster.has_master(queue):
                    del found[queue]
        return found

    def tell(self, offsets: Offsets) -> None:
        """Tell the brokers what is done, as far as it changed, if the options say so.

        Trouble is told, and the next call tries again.
        """
        if not self.options.commit_offsets:
            return
        by_broker: dict[str, Offsets] = {}
        for queue, offset in offsets.items():
            if self._told.get(queue) != offset:
                by_broker.setdefault(queue.broker, {})[queue] = offset
        for broker, changed in by_broker.items():
            try:
                self._commit(changed)
            except AerobeeError as error:
                self._complain(f"the progress at broker {broker}", f"could not be told: {error}")
            else:
                self._told |= changed

    def _commit(self, offsets: Offsets) -> None:
        group = self.options.group
        try:
            self.cluster.commit(group, offsets)
        except SubscriptionError:
            self._introduce(next(iter(offsets)))
            self.cluster.commit(group, offsets)

    def _introduce(self, queue: Queue) -> None:
        """Pull once by the name of the group: that makes it known where brokers make groups."""
        self.look_up()
        for address in self.addresses.get(queue, ()):
            # Whatever it answers, and if it is not there, the commit says so.
            with suppress(AerobeeError):
                self.cluster.introduce(self.options.group, queue, address)

    def mean_record_bytes(self, start: Offsets, end: Offsets) -> float | None:
        """The size of the records that come next, by a look at a few in the longest queue."""
        from aerobee.spark.source.fetcher import pulled
        from aerobee.spark.source.task import pulling

        now = self.clock()
        fresh = self._sampled_at is not None and now - self._sampled_at < ROUTES_KEPT_S
        longest = max(end, key=lambda queue: end[queue] - start[queue], default=None)
        if fresh or longest is None or end[longest] <= start[longest]:
            return self._mean_bytes
        first = start[longest]
        some = Range(
            longest.topic,
            longest.broker,
            self.addresses[longest],
            longest.queue_id,
            first,
            min(end[longest], first + SAMPLE_RECORDS),
        )
        how = replace(
            pulling(self.options), expression="*", expression_type="TAG", fail_on_data_loss=False
        )
        try:
            chunks = list(pulled(some, how, self.cluster.channel))
        except AerobeeError as error:
            self._complain("the size of messages", f"is not known: {error}")
            return self._mean_bytes
        self._sampled_at = now
        if count := sum(len(chunk.starts) for chunk in chunks):
            seen = sum(len(chunk.buffer) for chunk in chunks) / count
            self._mean_bytes = seen if self._mean_bytes is None else (self._mean_bytes + seen) / 2
        return self._mean_bytes

    def _complain(self, of: str, trouble: str) -> None:
        """Warn, but not of the same thing at every trigger."""
        now = self.clock()
        last = self._told_of.get(of)
        if last is None or now - last >= COMPLAIN_EVERY_S:
            self._told_of[of] = now
            log.warning("%s %s", of, trouble)
