"""What is the matter with a consumer group, and what became of a message, as plain values.

`AdminClient.diagnose_group` and `AdminClient.explain_message` give them. Both look at what brokers
and running consumers have anyway; what cannot be told from that stands in `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aerobee.client.message import MessageQueue, ReceivedMessage

__all__ = [
    "CopyKind",
    "Finding",
    "GroupDiagnosis",
    "GroupProgress",
    "GroupState",
    "MemberState",
    "MessageCopy",
    "MessageHistory",
    "QueueState",
    "Severity",
    "TraceRecord",
]


# ── Groups ──


class Severity(Enum):
    """How much a finding matters: something stands still, runs late or is lost, or is unusual."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found: `kind` for programs; why it is so, and what to do, for people."""

    kind: str
    severity: Severity
    text: str
    advice: str
    queues: Sequence[MessageQueue] = ()
    members: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """A member of the group; `answered` is whether it gave an account of itself.

    `strategy` is how it shares queues, where its client says so. `waiting_acks` counts messages
    that it popped and has not acknowledged.
    """

    client_id: str
    address: str
    language: str
    version: str
    answered: bool
    orderly: bool = False
    strategy: str | None = None
    started_at: datetime | None = None
    waiting_acks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue of a topic that the group consumes.

    `lag` messages from `consumer_offset` on are not consumed; the next of them has waited for
    `waiting_s` seconds (None: not known). `owners` are members that hold the queue; what follows
    is the account of the first of them. `cached` messages are with it, pulled and not done.
    `lock_age_s` is how long ago the lock of an orderly consumer was asked for.
    """

    queue: MessageQueue
    first: int
    end: int
    consumer_offset: int
    waiting_s: float | None = None
    owners: Sequence[str] = ()
    cached: int = 0
    locked: bool = False
    lock_age_s: float | None = None
    pulled_at: datetime | None = None
    consumed_at: datetime | None = None

    @property
    def lag(self) -> int:
        """Messages not consumed yet; 0 where the offset is beyond the end."""
        return max(0, self.end - self.consumer_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDiagnosis:
    """How a group is. `consume_tps`: messages that brokers gave it, per second of a minute.

    `held_pops` are requests of popping members that brokers hold until something comes. `retries`
    are failed messages to be tried again, `dead_letters` those given up.
    """

    group: str
    at: datetime
    consume_type: str
    message_model: str
    consume_tps: float
    members: Sequence[MemberState]
    queues: Sequence[QueueState]
    findings: Sequence[Finding]
    retries: int = 0
    dead_letters: int = 0
    held_pops: int = 0
    unknown: Sequence[str] = ()

    @property
    def lag(self) -> int:
        """Messages not consumed yet, retries included."""
        return sum(one.lag for one in self.queues)

    @property
    def moves(self) -> bool:
        """Whether nothing was found that stops the group or a part of it."""
        return not any(one.severity is Severity.ERROR for one in self.findings)


# ── Messages ──


class CopyKind(Enum):
    """What a stored record is to a message.

    STORED in its topic; DELAYED or TIMED, to get there later; RECALL takes a timed one back; HALF
    of a transaction, GIVEN_UP when nobody ended it; RETRY of a group, waiting for its delay or
    there; DEAD letter of a group.
    """

    STORED = "stored"
    DELAYED = "delayed"
    TIMED = "timed"
    RECALL = "recall"
    HALF = "half"
    GIVEN_UP = "given_up"
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCopy:
    """One stored record of a message. `size_bytes` is the whole record's, `sys_flag` its bits.

    `waits`: it is not where it is to go yet, and gets there at `due_at` if that is known. `group`
    is whose retry or dead letter it is.
    """

    kind: CopyKind
    message: ReceivedMessage
    size_bytes: int
    sys_flag: int
    waits: bool = False
    due_at: datetime | None = None
    group: str | None = None


class GroupState(Enum):
    """What became of a message with a consumer group.

    PASSED: its offset lies behind it; FILTERED: its subscription does not want it; NOT_REACHED yet;
    IN_FLIGHT: with a member now; INVISIBLE: popped, and comes again unless acknowledged; RETRYING;
    DEAD; UNKNOWN.
    """

    PASSED = "passed"
    FILTERED = "filtered"
    NOT_REACHED = "not_reached"
    IN_FLIGHT = "in_flight"
    INVISIBLE = "invisible"
    RETRYING = "retrying"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """A group and a message: `text` says in a sentence what became of it there.

    `consumer_offset` is the group's in the queue of the message, None without one; `expression` its
    subscription, None while nobody is online. `until` is when it is tried or visible again.
    """

    group: str
    state: GroupState
    text: str
    consumer_offset: int | None = None
    expression: str | None = None
    tries: int = 0
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """What a client noted of the message: Pub, SubBefore, SubAfter, EndTransaction or Recall."""

    kind: str
    at: datetime | None
    group: str | None
    succeeded: bool | None
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """What became of one message: `text` in a sentence, all its copies, and the groups.

    `found` is false where no broker has anything of it; `text` says what that may mean.
    """

    message_id: str
    topic: str | None
    found: bool
    text: str
    copies: Sequence[MessageCopy] = ()
    groups: Sequence[GroupProgress] = ()
    traces: Sequence[TraceRecord] = ()
    unknown: Sequence[str] = ()
