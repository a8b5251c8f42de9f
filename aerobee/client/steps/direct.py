"""One message that an administrator has a consumer handle, without a queue or a commit.

Source: client §13.4 (ConsumeMessageDirectlyResult).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.steps.effects import Signal, Wait
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue import ConsumeMessageDirectlyResult

if TYPE_CHECKING:
    from aerobee.client.handling import Verdict
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.effects import Clock, Steps

DIRECT_MAX = 32
"""The most such messages that wait for a handler; more are refused."""
WITHIN_S = 10.0
"""The timeout: brokers wait this long for the response."""


@dataclass(slots=True)
class DirectConsumption:
    """The message, and the verdict of its handler."""

    message: ReceivedMessage
    settled: Signal = field(default_factory=Signal)
    verdict: Verdict | None = None

    def settle(self, verdict: Verdict | None) -> None:
        """Set the verdict of the handler; None for success."""
        self.verdict = verdict
        self.settled.set()

    def answer(self, clock: Clock, *, order: bool) -> Steps[Answer]:
        """The response to the broker, once the handler has ended or timed out."""
        began = clock.monotonic()
        yield Wait(self.settled, WITHIN_S)
        result, remark = "CR_SUCCESS", None
        if not self.settled.is_set:
            result, remark = "CR_LATER", f"the handler did not end within {WITHIN_S:g} s"
        elif self.verdict is not None:
            error = self.verdict.error
            result = "CR_LATER" if error is None else "CR_THROW_EXCEPTION"
            remark = None if error is None else f"{type(error).__name__}: {error}"
        body = ConsumeMessageDirectlyResult(
            order=order,
            consume_result=result,
            remark=remark,
            spent_time_mills=int(1000 * (clock.monotonic() - began)),
        )
        return Answer(body=body.to_bytes())
