"""The cluster in a running stream: failed requests are logged, and the next trigger repeats them.

A query outlives stale routes, brokers that are down, and deleted topics. Cached values are kept
until newer ones arrive, and the same problem is logged once a minute. The start of a stream is
strict: it would leave out what it does not see.
Source: spark §5.3.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from aerobee.errors import AerobeeError, PermissionDeniedError, SubscriptionError
from aerobee.spark.source.plan import Range
from aerobee.spark.source.positions import queues_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.errors import RouteNotFoundError
    from aerobee.spark.brokers import Cluster
    from aerobee.spark.offsets import Offsets, Queue
    from aerobee.spark.options import ReadOptions

log = logging.getLogger("aerobee.spark")

T = TypeVar("T")

ROUTES_KEPT_S = 10.0
"""The most that the list of queues may be old when a batch is planned."""
COMPLAIN_EVERY_S = 60.0
"""How often the same problem is logged while it lasts."""
SAMPLE_RECORDS = 32
"""The number of records for an estimate of their mean size; one response of any broker."""


class StreamCluster:
    """Queues, bounds and progress of one stream, in its driver. `clock` counts in seconds.

    Plain data that can be pickled: the connections belong to the process.
    """

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = monotonic) -> None:
        self.options = options
        self.clock = clock
        self.addresses: dict[Queue, tuple[str, ...]] = {}
        """The addresses of all queues ever seen, also of those whose broker is down."""
        self.routed: tuple[Queue, ...] = ()
        """The queues of the last route, sorted."""
        self._routed_at: float | None = None
        self._told: Offsets = {}
        self._told_of: dict[str, float] = {}
        self._mean_bytes: float | None = None
        self._sampled_at: float | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster connection of this process."""
        from aerobee.spark.brokers import cluster_of

        return cluster_of(self.options.name_servers, self.options.access)

    def look_up(self, *, strict: bool = False, anew: bool = False) -> bool:
        """Query the queues again if the cached ones are old, or at once with `anew` or `strict`.

        Without `strict`, failures are logged, the cached queues stay, and the result is False.
        """
        now = self.clock()
        old = self._routed_at is None or now - self._routed_at >= ROUTES_KEPT_S
        if not (old or strict or anew):
            return True
        try:
            queues = queues_of(self.cluster, self.options, None if strict else self._gone)
        except AerobeeError as error:
            if strict:
                raise
            self._complain("queues", f"cannot be listed, the known ones stay: {error}")
            return False
        self.routed = tuple(queues)
        self.addresses |= queues
        self._routed_at = now
        return True

    def find(self, queues: Sequence[Queue]) -> list[Queue]:
        """Look for queues of a batch; returns those whose broker is not registered now.

        A topic may have been deleted, or taken out of the options, since the batch was planned:
        then its broker says what it has of it.
        """
        unknown = [queue for queue in queues if queue not in self.addresses]
        if unknown:
            with suppress(PermissionDeniedError):
                self.addresses |= self.cluster.places(unknown, self.options.read_from)
        return [queue for queue in unknown if queue not in self.addresses]

    def tell_of_missing(self, offsets: Iterable[Queue]) -> None:
        """Warn of queues with offsets in the stream that are missing from the routes."""
        routed = set(self.routed)
        for topic, broker in sorted({queue[:2] for queue in offsets if queue not in routed}):
            of = f"queues of topic {topic} on broker {broker}"
            self._complain(
                of, "are in no route now, or not in the options; they stay where they are"
            )

    def _gone(self, topic: str, error: RouteNotFoundError) -> None:
        self._complain(f"topic {topic}", f"is not there now; the stream waits for it: {error}")

    def stored_ms(self, places: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """When the messages at these offsets were stored; None where there is no message.

        Queues of brokers that do not answer are left out, and messages that cannot be read.
        """
        group = self.options.group
        return self.asked(
            places,
            lambda its: self.cluster.stored_ms(group, {queue: places[queue] for queue in its}),
        )

    def asked(
        self, queues: Iterable[Queue], ask: Callable[[list[Queue]], Mapping[Queue, T]]
    ) -> dict[Queue, T]:
        """Collect the responses of the brokers that answer; the failures of others are logged."""
        by_broker: dict[str, list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        answers: dict[Queue, T] = {}
        for broker, its_queues in by_broker.items():
            try:
                answers |= ask(its_queues)
            except AerobeeError as error:
                self._complain(f"broker {broker}", f"does not tell its offsets: {error}")
        return answers

    def ends(self, queues: Iterable[Queue], begin: Mapping[Queue, int]) -> Offsets:
        """The ends of the queues that brokers answer, without wrong ones before `begin`.

        A deleted topic ends at 0 while its route is cached, and a slave whose master is down may be
        behind.
        """
        ends = self.asked(queues, self.cluster.max_offsets)
        if back := [queue for queue, end in ends.items() if end < begin.get(queue, 0)]:
            listed = self.look_up(anew=True)
            known = set(self.routed) if listed else set()
            for queue in back:
                if not self.cluster.has_master(queue):
                    of = f"the master of broker {queue.broker}"
                    self._complain(of, "is down and its slave is behind; the stream waits for it")
                if queue not in known or not self.cluster.has_master(queue):
                    del ends[queue]
        return ends

    def tell(self, offsets: Offsets) -> None:
        """Commit the changed offsets to the brokers if the options ask for it.

        Failures are logged, and the next call tries again. Queues without a route are left out: a
        broker refuses a topic that was deleted, each time.
        """
        if not self.options.commit_offsets:
            return
        self.look_up()
        routed = set(self.routed)
        by_broker: dict[str, Offsets] = {}
        for queue, offset in offsets.items():
            if queue in routed and self._told.get(queue) != offset:
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
        """Pull once in the name of the group, so that brokers with automatic creation create it."""
        self.look_up()
        for address in self.addresses.get(queue, ()):
            # The result does not matter: if the group is missing, the commit says so.
            with suppress(AerobeeError):
                self.cluster.introduce(self.options.group, queue, address)

    def mean_record_bytes(self, start: Offsets, end: Offsets) -> float | None:
        """Estimate the size of the next records, from a few records of the longest queue."""
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
        """Log a warning, at most once per COMPLAIN_EVERY_S for the same problem."""
        now = self.clock()
        last = self._told_of.get(of)
        if last is None or now - last >= COMPLAIN_EVERY_S:
            self._told_of[of] = now
            log.warning("%s %s", of, trouble)
