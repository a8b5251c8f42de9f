"""The deliveries of a POP consumer whose outcome is open, for its message trace.

    delivered → acknowledged (success) · sent back, rejected (failed) · neither in time (time-out)

Source: client §15.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aerobee.hooks import ConsumeContext, ConsumeOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.traces import Traces

OPEN_MAX = 4096
"""The most messages with an open outcome; further ones are not traced."""


class Delivery(NamedTuple):
    """One delivered message."""

    context: ConsumeContext
    until: float
    """The end of its invisible time."""


@dataclass(slots=True)
class Deliveries:
    """The messages with an open outcome, by their receipts."""

    traces: Traces
    open: dict[tuple[str, str], Delivery] = field(default_factory=dict)

    def handed_out(
        self, messages: Sequence[ReceivedMessage], receipts: Iterable[str], until: float
    ) -> None:
        """Note the delivery of messages, which are invisible to others until `until`."""
        self.drop_late()
        for message, receipt in zip(messages, receipts, strict=True):
            if len(self.open) >= OPEN_MAX:
                return
            context = ConsumeContext(self.traces.group, [message])
            self.traces.before_consume(context)
            self.open[message.topic, receipt] = Delivery(context, until)

    def extended(self, topic: str, before: str, after: str, until: float) -> None:
        """Replace the receipt of a message, which is invisible to others until `until`."""
        if (delivery := self.open.pop((topic, before), None)) is not None:
            self.open[topic, after] = delivery._replace(until=until)

    def ended(self, topic: str, receipt: str, outcome: ConsumeOutcome) -> None:
        """Trace the outcome of a message."""
        if (delivery := self.open.pop((topic, receipt), None)) is not None:
            self._tell(delivery.context, outcome)

    def drop_late(self) -> None:
        """Trace messages whose invisible time is over as timed out."""
        now = self.traces.clock.monotonic()
        late = [key for key, delivery in self.open.items() if delivery.until <= now]
        for key in late:
            self._tell(self.open.pop(key).context, ConsumeOutcome.TIME_OUT)

    def _tell(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        if outcome is not ConsumeOutcome.SUCCESS:
            context.outcome, context.failed = outcome, context.messages
        self.traces.after_consume(context)
