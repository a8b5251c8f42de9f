"""Which brokers have which queues of a topic, as they registered. What touches all goes in steps.

A broker of 80,000 topics leaves at once, and its topics name it for a while: answers
leave it out. Where a master left its acting slave, the topics are not written to from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from aerobee.broker.errors import LimitReached
from aerobee.broker.namesrv.registrations import check_queues
from aerobee.broker.topics.topics import PERM_WRITE
from aerobee.remoting.wire.bodies.route import QueueData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from aerobee.remoting.wire.bodies.topic_config import TopicConfig

__all__ = ["SORTED_MAX", "TOPICS_STEP", "TopicQueues", "unwritable"]

TOPICS_STEP: Final = 500
"""Topics that are read, or written, in one step."""
SORTED_MAX: Final = 10_000
"""Longer lists are given in the order in which the topics came: sorting them cannot be cut up."""


class TopicQueues:
    """Invariant: what the topics say of a broker in `gone` is older than its leaving."""

    def __init__(self, *, max_topics: int, max_pairs: int) -> None:
        self.table: dict[str, dict[str, QueueData]] = {}
        """topic → broker name → queues."""
        self.max_topics = max_topics
        self.max_pairs = max_pairs
        self.pairs = 0
        """At least as many as there are of topic and broker: counted again at the limit."""
        self.gone: set[str] = set()
        self.masterless: set[str] = set()
        """Brokers with an acting master, whose topics may still say that they are writable."""
        self.settling: Iterator[None] | None = None
        """The pass over the topics in progress; a request that needs it runs its steps."""

    # ── One topic ──

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """Broker name → queues of a topic."""
        return self.table.get(topic, {})

    def shown(self, queue: QueueData) -> QueueData:
        """The queues of a topic on one broker as they go out."""
        if queue.broker_name not in self.masterless:
            return queue
        return msgspec.structs.replace(queue, perm=unwritable(queue.perm))

    def put(self, broker: str, config: TopicConfig, perm: int) -> None:
        """The queues of one topic on one broker."""
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
        """The same, as it goes out."""
        brokers = self.table.setdefault(topic, {})
        self.pairs += queue.broker_name not in brokers
        brokers[queue.broker_name] = queue

    def drop(self, topic: str, brokers: Iterable[str]) -> None:
        """One topic less on these brokers; without a broker the topic goes."""
        queues = self.table.get(topic)
        if queues is None:
            return
        for broker in brokers:
            queues.pop(broker, None)
        if not queues:
            del self.table[topic]

    # ── Limits ──

    def check(self, topics: Mapping[str, TopicConfig]) -> Iterator[None]:
        """That all of these can be taken in, from one broker. Raises: Refused, LimitReached."""
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
        """That there may be so many more topics. Raises: LimitReached."""
        if new and len(self.table) + new > self.max_topics:
            raise LimitReached("topic in the name server", self.max_topics)

    def count_pairs(self) -> Iterator[None]:
        """Count them again."""
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
        """The topics whose queues, by broker name, are such; sorted unless they are many."""
        yield from self.settle()
        found = []
        for number, topic in enumerate(list(self.table), 1):
            queues = self.table.get(topic)
            if queues and wanted(queues):
                found.append(topic)
            if number % TOPICS_STEP == 0:
                yield
        return sorted(found) if len(found) <= SORTED_MAX else found

    def change_permissions(
        self, broker: str, change: PermissionChange
    ) -> Generator[None, None, int]:
        """Apply `change` to every topic of a broker; how many it has. Others may run at yields."""
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
        """Clear away what the topics still say of who has left. Others may run at each yield."""
        while self.gone or self.masterless:
            if self.settling is None:
                self.settling = self.clear_away()
            # Not `yield from`: who closes these steps must not close those that others take.
            for _ in self.settling:
                yield

    def clear_away(self) -> Iterator[None]:
        """One pass over the topics, for all who had left when it began."""
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
    """Old permission bits → new ones."""

    def __call__(self, perm: int, /) -> int: ...


def unwritable(perm: int) -> int:
    """Permissions without that to write."""
    return perm & ~PERM_WRITE
