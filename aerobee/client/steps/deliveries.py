"""What a POP consumer handed out and was not told about, so that its trace says what came of it.

    handed out → acknowledged (success) · sent back, rejected (failed) · neither in time (time-out)

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

__all__ = ["OPEN_MAX", "Deliveries"]

OPEN_MAX = 4096
"""Messages whose end may be open; of more there is no trace, as of all that is too much."""


class Delivery(NamedTuple):
    """One message in the hands of a caller."""

    context: ConsumeContext
    until: float
    """When others may have it."""


@dataclass(slots=True)
class Deliveries:
    """The messages whose end the trace does not say yet, by what they are acknowledged with."""

    traces: Traces
    open: dict[tuple[str, str], Delivery] = field(default_factory=dict)

    def handed_out(
        self, messages: Sequence[ReceivedMessage], receipts: Iterable[str], until: float
    ) -> None:
        """A caller got these, and has them until then."""
        self.drop_late()
        for message, receipt in zip(messages, receipts, strict=True):
            if len(self.open) >= OPEN_MAX:
                return
            context = ConsumeContext(self.traces.group, [message])
            self.traces.before_consume(context)
            self.open[message.topic, receipt] = Delivery(context, until)

    def extended(self, topic: str, before: str, after: str, until: float) -> None:
        """A message has a new receipt, and is the caller's until then."""
        if (delivery := self.open.pop((topic, before), None)) is not None:
            self.open[topic, after] = delivery._replace(until=until)

    def ended(self, topic: str, receipt: str, outcome: ConsumeOutcome) -> None:
        """The caller has said what came of a message."""
        if (delivery := self.open.pop((topic, receipt), None)) is not None:
            self._tell(delivery.context, outcome)

    def drop_late(self) -> None:
        """Tell of those that nobody said anything about in time."""
        now = self.traces.clock.monotonic()
        late = [key for key, delivery in self.open.items() if delivery.until <= now]
        for key in late:
            self._tell(self.open.pop(key).context, ConsumeOutcome.TIME_OUT)

    def _tell(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        if outcome is not ConsumeOutcome.SUCCESS:
            context.outcome, context.failed = outcome, context.messages
        self.traces.after_consume(context)
