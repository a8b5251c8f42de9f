"""The queues of each topic on each broker, as registered. Work on all topics runs in steps.

A broker with 80,000 topics is removed at once; its queue entries are removed later, in steps, and
until then answers leave them out. When a master left and a slave acts for it, its topics are shown
as not writable from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from aerobee.broker.errors import LimitReached
from aerobee.broker.namesrv.registrations import check_queues
from aerobee.broker.saved.documents import names_in
from aerobee.broker.topics.topics import PERM_WRITE
from aerobee.remoting.wire.bodies.route import QueueData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from aerobee.remoting.wire.bodies.topic import TopicConfig

TOPICS_STEP: Final = 500
"""Topics that are read, or written, in one step."""


class TopicQueues:
    """topic → broker name → queues.

    Invariant: queue entries of a broker in `gone` were stored before it left.
    """

    def __init__(self, *, max_topics: int, max_pairs: int) -> None:
        self.table: dict[str, dict[str, QueueData]] = {}
        """topic → broker name → queues."""
        self.max_topics = max_topics
        self.max_pairs = max_pairs
        self.pairs = 0
        """An upper bound of the pairs of topic and broker; counted exactly at the limit."""
        self.gone: set[str] = set()
        """Brokers that left, whose queue entries may not be removed yet."""
        self.masterless: set[str] = set()
        """Brokers with an acting master whose topics may still have the write permission."""
        self.settling: Iterator[None] | None = None
        """The running pass over all topics; a request that needs it runs its steps."""

    # ── One topic ──

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """Broker name → queues of a topic."""
        return self.table.get(topic, {})

    def shown(self, queue: QueueData) -> QueueData:
        """The queues of a topic on one broker, with the permissions that an answer shows."""
        if queue.broker_name not in self.masterless:
            return queue
        return msgspec.structs.replace(queue, perm=unwritable(queue.perm))

    def put(self, broker: str, config: TopicConfig, perm: int) -> None:
        """Store the queues of one topic on one broker."""
        self.put_data(
            config.topic_name,
            QueueData(
                broker_name=broker,
                perm=perm,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
            ),
        )

    def put_data(self, topic: str, queue: QueueData) -> None:
        """Store the queues of one topic on one broker, in the form of an answer."""
        brokers = self.table.setdefault(topic, {})
        self.pairs += queue.broker_name not in brokers
        brokers[queue.broker_name] = queue

    def drop(self, topic: str, brokers: Iterable[str]) -> None:
        """Remove a topic from these brokers; the topic itself when no broker is left."""
        queues = self.table.get(topic)
        if queues is None:
            return
        for broker in brokers:
            queues.pop(broker, None)
        if not queues:
            del self.table[topic]

    # ── Limits ──

    def check(self, topics: Mapping[str, TopicConfig]) -> Iterator[None]:
        """Check that all topics of a broker can be stored. Raises: Refusal, LimitReached."""
        new = 0
        for number, (topic, config) in enumerate(topics.items(), 1):
            if number % TOPICS_STEP == 0:
                yield
            check_queues(config.topic_name, config.read_queue_nums, config.write_queue_nums)
            new += topic not in self.table
        self.check_room(new)
        if self.pairs + len(topics) > self.max_pairs:
            yield from self.count_pairs()
            if self.pairs + len(topics) > self.max_pairs:
                raise LimitReached("topic of a broker in the name server", self.max_pairs)

    def check_room(self, new: int) -> None:
        """Check that there is room for `new` more topics. Raises: LimitReached."""
        if new and len(self.table) + new > self.max_topics:
            raise LimitReached("topic in the name server", self.max_topics)

    def count_pairs(self) -> Iterator[None]:
        """Count the pairs of topic and broker exactly."""
        pairs = 0
        for number, topic in enumerate(list(self.table), 1):
            pairs += len(self.of(topic))
            if number % TOPICS_STEP == 0:
                yield
        self.pairs = pairs

    # ── Many topics ──

    def names(
        self, wanted: Callable[[Mapping[str, QueueData]], bool]
    ) -> Generator[None, None, list[str]]:
        """The topics whose queues (broker name → queues) are `wanted`; a long list is unsorted."""
        yield from self.settle()
        topics = []
        for number, topic in enumerate(list(self.table), 1):
            queues = self.table.get(topic)
            if queues and wanted(queues):
                topics.append(topic)
            if number % TOPICS_STEP == 0:
                yield
        return names_in(topics)

    def change_permissions(
        self, broker: str, change: PermissionChange
    ) -> Generator[None, None, int]:
        """Apply `change` to every topic of a broker; returns the number of topics, in steps."""
        count = 0
        for number, topic in enumerate(list(self.table), 1):
            queues = self.table.get(topic, {})
            queue = queues.get(broker)
            if queue is not None:
                queues[broker] = msgspec.structs.replace(queue, perm=change(queue.perm))
                count += 1
            if number % TOPICS_STEP == 0:
                yield
        return count

    def settle(self) -> Iterator[None]:
        """Remove the queue entries of brokers that left, in steps."""
        while self.gone or self.masterless:
            if self.settling is None:
                self.settling = self.clear_away()
            # Not `yield from`: closing this generator must not close the pass that other requests
            # run as well.
            for _ in self.settling:
                yield

    def clear_away(self) -> Iterator[None]:
        """One pass over the topics, for all brokers that had left when it began."""
        gone, masterless = set(self.gone), set(self.masterless)
        for number, topic in enumerate(list(self.table), 1):
            self.drop(topic, gone)
            queues = self.table.get(topic, {})
            for broker in masterless & queues.keys():
                queues[broker] = self.shown(queues[broker])
            if number % TOPICS_STEP == 0:
                yield
        self.gone -= gone
        self.masterless -= masterless
        self.settling = None


class PermissionChange(Protocol):
    """A function of the old permission bits that returns the new ones."""

    def __call__(self, perm: int, /) -> int: ...


def unwritable(perm: int) -> int:
    """The permissions without the write bit."""
    return perm & ~PERM_WRITE
