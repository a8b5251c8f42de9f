"""When a send is tried again, and how long it waits before: until its time is over. Pure.

What passes by itself (a broker that restarts, or is busy; a name server that is away) is worth the
caller's whole time; what a broker refuses for a reason of its own is tried a few times; what is
the caller's own error only where another broker may think differently. Source: client §5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.message import SendStatus
from aerobee.errors import (
    AerobeeError,
    Attempt,
    BrokerError,
    RequestTimeoutError,
    SendFailedError,
)
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from random import Random

    from aerobee.client.config import RetryPolicy
    from aerobee.client.steps.effects import Clock

__all__ = ["Tries", "is_away", "worth_retrying"]

NOT_READY = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)
"""What a broker answers that starts, stops, has a full disk or too much to do."""
ELSEWHERE = frozenset({16, 17, 204, 205})
"""Refusals of one broker that it would repeat: no permission, no such topic, another unit."""
STATUSES = frozenset(status.value for status in SendStatus)
MOMENT_S = 0.001
"""What is not worth a request any more."""
NOWHERE = "?"
"""In place of the broker, for a try that found none."""


def worth_retrying(error: AerobeeError, policy: RetryPolicy) -> bool:
    """Whether another try may store the message."""
    if not isinstance(error, BrokerError):
        return error.retryable
    return error.code in policy.codes or error.code in STATUSES


def is_away(error: AerobeeError) -> bool:
    """Whether a broker is not there, or not ready, for now; more tries may outlast that."""
    if isinstance(error, BrokerError):
        return error.code in NOT_READY
    return error.retryable


@dataclass(slots=True)
class Tries:
    """The tries of one send to a topic."""

    topic: str
    policy: RetryPolicy
    clock: Clock
    random: Random
    deadline: float
    failed: list[Attempt] = field(default_factory=list)
    over: bool = False
    """Whether what is raised now is the end of the send, not of a try."""
    _counted: int = 0
    """Failures that only so many tries are spent on."""

    def timeout_s(self) -> float:
        """How long the next request may take. Raises: SendFailedError when the time is over."""
        left_s = self.left_s()
        if left_s < MOMENT_S:
            raise self._ended()
        return min(left_s, self.policy.per_try or left_s)

    def left_s(self) -> float:
        """How much time there is for all further tries."""
        return max(0.0, self.deadline - self.clock.monotonic())

    def note(self, broker: str, error: AerobeeError) -> None:
        """A try failed. Raises: the error if no try can change it, SendFailedError after the last.

        A `broker` of "" is none: the try did not come that far.
        """
        if self.over or not worth_retrying(error, self.policy):
            raise error
        self.failed.append(Attempt(broker or NOWHERE, error))
        if not (self.policy.patient and is_away(error)):
            self._counted += 1
        if self._counted >= self.policy.attempts:
            raise self._ended()

    def pause_s(self, broker: str) -> float:
        """How long to wait before the next try, which is to go to this broker.

        Nothing if it has not failed yet. Raises: the error that it would only repeat.
        """
        failed = [attempt.error for attempt in self.failed if attempt.broker == (broker or NOWHERE)]
        if not failed:
            return 0.0
        if failed[-1].code in ELSEWHERE:
            raise self._ended()
        policy = self.policy
        pause_s = min(policy.backoff * 2.0 ** min(len(failed) - 1, 16), policy.backoff_max)
        # Not all at the same time: a thousand sends may wait for one broker.
        return min(pause_s * self.random.uniform(0.5, 1.0), self.left_s())

    def _ended(self) -> AerobeeError:
        self.over = True
        if not self.failed:
            text = f"sending to topic {self.topic}: no time left to try"
            return RequestTimeoutError(text).about(topic=self.topic)
        last = self.failed[-1].error
        if all(one.broker == NOWHERE or one.error.code in ELSEWHERE for one in self.failed):
            # It says all there is to say.
            return last
        return SendFailedError(f"sending to topic {self.topic}", self.failed, self.topic)
