"""Diagnoses of consumer groups and histories of messages, as plain values.

`AdminClient.diagnose_group` and `AdminClient.explain_message` return them. Both read what brokers
and running consumers know already; questions that this does not answer are in `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

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
    """The severity of a finding: something is stopped, late or lost, or only unusual."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: `kind` for programs; the cause and what to do for people."""

    kind: str
    severity: Severity
    text: str
    advice: str
    queues: Sequence[MessageQueue] = ()
    members: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """A member of the group; `answered` is whether it reported its state.

    `strategy` is its allocation strategy, if its client reports it. `waiting_acks` counts messages
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
    `waiting_s` seconds (None: unknown). `owners` are members that hold the queue; the fields after
    it are reported by the first of them. `cached` messages are pulled and not yet processed.
    `lock_age_s` is the time since an orderly consumer last locked the queue.
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
        """Messages not consumed yet; 0 if the offset is beyond the end."""
        return max(0, self.end - self.consumer_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDiagnosis:
    """The state of a group. `consume_tps`: messages that brokers delivered, per second of a minute.

    `held_pops` are POP requests that brokers hold until messages arrive. `retries` are failed
    messages that will be tried again, `dead_letters` those given up.
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
        return sum(queue.lag for queue in self.queues)

    @property
    def moves(self) -> bool:
        """Whether there is no finding that stops the group or a part of it."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


# ── Messages ──


class CopyKind(Enum):
    """How a stored record relates to a message.

    STORED in its topic; DELAYED or TIMED until its delivery; RECALL cancels a timed one; HALF of a
    transaction, GIVEN_UP if it was never ended; RETRY of a group, delayed or ready; DEAD letter of
    a group.
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

    `waits`: it is not in its topic yet, and will be at `due_at` if that is known. `group` is the
    group of a retry or dead letter.
    """

    kind: CopyKind
    message: ReceivedMessage
    size_bytes: int
    sys_flag: int
    waits: bool = False
    due_at: datetime | None = None
    group: str | None = None


class GroupState(Enum):
    """The state of a message in a consumer group.

    PASSED: the group's offset is beyond it; FILTERED: the subscription excludes it; NOT_REACHED
    yet; IN_FLIGHT: a member has it now; INVISIBLE: popped, and delivered again unless acknowledged;
    RETRYING; DEAD; UNKNOWN.
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
    """The progress of a group with a message: `text` describes it in a sentence.

    `consumer_offset` is the group's in the queue of the message, None without one; `expression` its
    subscription, None while no member is online. `until` is the time of the next try or visibility.
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
    """A trace record of the message: Pub, SubBefore, SubAfter, EndTransaction or Recall."""

    kind: str
    at: datetime | None
    group: str | None
    succeeded: bool | None
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """The history of one message: `text` in a sentence, all its copies, and the groups.

    `found` is false if no broker has any copy of it; `text` says what that may mean.
    """

    message_id: str
    topic: str | None
    found: bool
    text: str
    copies: Sequence[MessageCopy] = ()
    groups: Sequence[GroupProgress] = ()
    traces: Sequence[TraceRecord] = ()
    unknown: Sequence[str] = ()
