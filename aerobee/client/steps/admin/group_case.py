"""The state of a group, prepared for the rules of a diagnosis: members, queues and owners. Pure.

Source: client §9.8, §13.4 (ConsumerRunningInfo).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.topics import instant
from aerobee.diagnosis import MemberState, QueueState
from aerobee.remoting.wire.version import describe
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from aerobee.admin import RunningQueue
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.admin.group_look import GroupLook

ORDERLY, STARTED = "PROP_CONSUMEORDERLY", "PROP_CONSUMER_START_TIMESTAMP"
STRATEGY = "allocateMessageQueueStrategy"
OF_CLASSES = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
}
"""Java class → name of the allocation strategy."""
BROADCASTING = "BROADCASTING"
PASSIVELY = "CONSUME_PASSIVELY"
NAMED_MAX = 8
"""The most queues or members that a sentence names."""


class Case:
    """The state of a group, in the terms that the rules use."""

    def __init__(self, look: GroupLook, slow_after_s: float) -> None:
        self.look = look
        self.slow_after_s = slow_after_s
        self.members = members_of(look)
        self.queues = queues_of(look)
        online = next(iter(look.connections.values()), None)
        self.broadcasts = online is not None and online.message_model == BROADCASTING
        self.orderly = any(member.orderly for member in self.members)
        self.pops = any(info.popped for info in look.infos.values())
        self.shares = (
            online is not None
            and online.consume_type == PASSIVELY
            and not (self.broadcasts or self.pops or look.silent)
        )
        """Whether each queue should have one owner, and all owners are known."""

    @property
    def behind(self) -> list[QueueState]:
        """The queues with a lag."""
        return [queue for queue in self.queues if queue.lag > 0 and not self.broadcasts]

    def age_s(self, at: datetime | None) -> float | None:
        """The seconds since an instant; None for never."""
        return None if at is None else max(0.0, self.look.at_ms / 1000 - at.timestamp())


def members_of(look: GroupLook) -> list[MemberState]:
    """The members of the group, each once."""
    states: dict[str, MemberState] = {}
    for _, member in look.members():
        info = look.infos.get(member.client_id)
        properties = {} if info is None else info.properties
        started = whole_number(properties.get(STARTED, ""))
        states[member.client_id] = MemberState(
            client_id=member.client_id,
            address=member.client_addr.removeprefix("/"),
            language=member.language,
            version=describe(member.version),
            answered=info is not None,
            orderly=properties.get(ORDERLY) == "true",
            strategy=properties.get("strategy") or strategy_of(properties.get(STRATEGY)),
            started_at=None if started is None else instant(started),
            waiting_acks=sum(queue.waiting_acks for queue in info.popped) if info else 0,
        )
    return [states[client_id] for client_id in sorted(states)]


def strategy_of(text: str | None) -> str | None:
    """The strategy name for the class that a Java consumer reports with package and address."""
    if not text:
        return None
    name = text.partition("@")[0].rpartition(".")[2]
    return OF_CLASSES.get(name, name)


def queues_of(look: GroupLook) -> list[QueueState]:
    """The queues of all topics, with the running info of their first owner."""
    owners: dict[MessageQueue, list[str]] = defaultdict(list)
    accounts: dict[MessageQueue, RunningQueue] = {}
    for client_id in sorted(look.infos):
        for share in look.infos[client_id].queues:
            if not share.dropped:
                owners[share.queue].append(client_id)
                accounts.setdefault(share.queue, share)
    queues = []
    for queue in sorted(look.bounds):
        bounds, progress, account = look.bounds[queue], look.offsets.get(queue), accounts.get(queue)
        locked = account.last_locked_at if account else None
        queues.append(
            QueueState(
                queue=queue,
                first=bounds.first,
                end=bounds.end,
                consumer_offset=progress.consumer_offset if progress else 0,
                waiting_s=look.waits_s.get(queue),
                owners=owners[queue],
                cached=account.cached_messages if account else 0,
                locked=account.locked if account else False,
                lock_age_s=max(0.0, look.at_ms / 1000 - locked.timestamp()) if locked else None,
                pulled_at=account.last_pulled_at if account else None,
                consumed_at=account.last_consumed_at if account else None,
            )
        )
    return queues


# ── Texts ──


def names(things: Iterable[object]) -> str:
    """The first names as text, and how many more there are."""
    listed = [str(thing) for thing in things]
    more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more


def queue_names(queues: Sequence[QueueState]) -> str:
    """The names of queues as text."""
    return names(queue.queue for queue in queues)


def total(queues: Iterable[QueueState]) -> int:
    """The lag of all queues together, in messages."""
    return sum(queue.lag for queue in queues)
