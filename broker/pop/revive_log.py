"""Writes check points and acknowledgements to the revive log, by way of the timers.

Both are ordinary messages of a system topic with a due time: so they survive a stop, a kill and a
take-over by a Java broker without a file of their own. `revive` reads them. Source: semantics §11.2
(PopMessageProcessor.buildCkMsg, AckMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.pop.pop_records import CHECK_POINT_TAG, revive_topic
from aerobee.store.format.record import MessageDraft

if TYPE_CHECKING:
    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.pop.pop_hold import PopHold
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.broker.pop.pop_records import Ack, CheckPoint
    from aerobee.store.results import PutStatus

__all__ = ["PopsOut", "ReviveLog"]

AHEAD_MS: Final = 1_000
"""How long before its time is over a check point arrives in the revive log."""


class PopsOut(NamedTuple):
    """Where popped messages are recorded, and the pops that wait."""

    revive_log: ReviveLog
    offsets: ConsumerOffsetTable
    orders: PopOrderTable
    hold: PopHold
    timed: bool
    """Whether the timers run."""


class ReviveLog:
    """The writer. It returns the status of the put."""

    def __init__(self, core: Core) -> None:
        self.topic = revive_topic(core.config.broker.broker_cluster_name)
        self._puts = core.puts
        self._clock = core.clock
        self._host = core.store_host
        self._stats = core.stats.pop
        self._stats.since_ms = core.clock.now_ms()

    def check_point(
        self, point: CheckPoint, revive_qid: int, *, accepted: bool = False
    ) -> PutStatus:
        """Put the check point of a pop; `accepted`: one was put before. Raises: Refused."""
        point.revive_time = point.due_ms
        status = self._put(
            point.to_bytes(),
            revive_qid,
            tag=CHECK_POINT_TAG,
            deliver_ms=point.due_ms - AHEAD_MS,
            unique_key=point.unique_key,
            accepted=accepted,
        )
        key = (point.topic, point.group, "CK", status.name)
        self._stats.add(self._stats.revive_in, key)
        return status

    def acknowledge(self, ack: Ack, revive_qid: int, due_ms: int) -> PutStatus:
        """Put an acknowledgement. Raises: Refused."""
        status = self._put(
            ack.to_bytes(),
            revive_qid,
            tag=ack.tag,
            deliver_ms=due_ms,
            unique_key=ack.unique_key,
        )
        self._stats.add(self._stats.revive_in, (ack.topic, ack.group, "ACK", status.name))
        return status

    def _put(
        self,
        body: bytes,
        revive_qid: int,
        *,
        tag: str,
        deliver_ms: int,
        unique_key: str,
        accepted: bool = False,
    ) -> PutStatus:
        draft = MessageDraft(
            self.topic,
            revive_qid,
            body,
            b"",
            self._host,
            self._host,
            born_timestamp=self._clock.now_ms(),
        )
        properties = {
            "TAGS": tag,
            "TIMER_DELIVER_MS": str(deliver_ms),
            "UNIQ_KEY": unique_key,
        }
        return self._puts.put(draft, properties, accepted=accepted).status
