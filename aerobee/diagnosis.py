"""What is the matter with a consumer group, and what became of a message, as plain values.

`AdminClient.diagnose_group` and `AdminClient.explain_message` give them. Both look at what brokers
and running consumers have anyway; what cannot be told from that stands in `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aerobee.client.message import MessageQueue

__all__ = ["Finding", "GroupDiagnosis", "MemberState", "QueueState", "Severity"]


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
