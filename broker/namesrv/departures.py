"""What brokers leave behind in the topics of the name server, cleared away in steps.

A broker of 80,000 topics leaves at once, and its topics name it for a while: answers
leave it out. Where a master left its acting slave, the topics are not written to from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.topics.topics import PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.remoting.wire.bodies.route import QueueData

__all__ = ["TOPICS_STEP", "Departures", "drop_queues", "unwritable"]

TOPICS_STEP: Final = 500
"""Topics that are read, or written, in one step."""


class Departures:
    """Invariant: what the topics say of a broker in `gone` is older than its leaving."""

    def __init__(self, queues: dict[str, dict[str, QueueData]]) -> None:
        self.queues = queues
        """topic → broker name → queues: the table of the name server."""
        self.gone: set[str] = set()
        self.masterless: set[str] = set()
        """Brokers with an acting master, whose topics may still say that they are writable."""
        self.settling: Iterator[None] | None = None
        """The pass over the topics that is under way; a request that needs it takes its steps."""

    def shown(self, queue: QueueData) -> QueueData:
        """The queues of a topic on one broker as they go out."""
        if queue.broker_name not in self.masterless:
            return queue
        return msgspec.structs.replace(queue, perm=unwritable(queue.perm))

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
        for number, topic in enumerate(list(self.queues), 1):
            drop_queues(self.queues, topic, gone)
            queues = self.queues.get(topic, {})
            for broker in masterless & queues.keys():
                queues[broker] = self.shown(queues[broker])
            if number % TOPICS_STEP == 0:
                yield
        self.gone -= gone
        self.masterless -= masterless
        self.settling = None


def drop_queues(table: dict[str, dict[str, QueueData]], topic: str, brokers: Iterable[str]) -> None:
    """One topic less on these brokers; without a broker the topic goes."""
    queues = table.get(topic)
    if queues is None:
        return
    for broker in brokers:
        queues.pop(broker, None)
    if not queues:
        del table[topic]


def unwritable(perm: int) -> int:
    """Permissions without that to write."""
    return perm & ~PERM_WRITE
