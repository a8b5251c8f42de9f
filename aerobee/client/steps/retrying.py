"""The retries of a send: whether it is tried again, and after which pause. Pure.

Temporary failures (a broker that restarts or is busy, a name server that is down) are retried until
the timeout; refusals of one broker a few times; errors of the caller only if another broker may
accept the message. Source: client §5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.send_result import SendStatus
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

    from aerobee.client.settings.client import RetryPolicy
    from aerobee.client.steps.effects import Clock

NOT_READY = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY}
)
"""Response codes of a broker that starts, stops, is overloaded or has a full disk."""
ELSEWHERE = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Response codes that a broker would repeat: no permission, no such topic, another unit."""
STATUSES = frozenset(status.value for status in SendStatus)
MOMENT_S = 0.001
"""The least remaining time for another request."""
NOWHERE = "?"
"""Stands for the broker of a try that found none."""


def worth_retrying(error: AerobeeError, policy: RetryPolicy) -> bool:
    """Whether another try may store the message."""
    if not isinstance(error, BrokerError):
        return error.retryable
    return error.code in policy.codes or error.code in STATUSES


def is_away(error: AerobeeError) -> bool:
    """Whether the failure is temporary: a broker is unreachable or not ready."""
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
    """Whether the send has ended, so that an error is its result."""
    _counted: int = 0
    """The number of failures that count towards the most attempts."""

    def timeout_s(self) -> float:
        """The timeout of the next request. Raises: SendFailedError when no time remains."""
        left_s = self.left_s()
        if left_s < MOMENT_S:
            raise self._ended()
        return min(left_s, self.policy.per_try or left_s)

    def left_s(self) -> float:
        """The remaining time for all further tries."""
        return max(0.0, self.deadline - self.clock.monotonic())

    def note(self, broker: str, error: AerobeeError) -> None:
        """Note a failed try. Raises: a permanent error, SendFailedError after the last try.

        A `broker` of "" means that the try had chosen none yet.
        """
        if self.over or not worth_retrying(error, self.policy):
            raise error
        self.failed.append(Attempt(broker or NOWHERE, error))
        if not (self.policy.patient and is_away(error)):
            self._counted += 1
        if self._counted >= self.policy.attempts:
            raise self._ended()

    def pause_s(self, broker: str) -> float:
        """The pause before the next try, at this broker.

        It is 0 if the broker has not failed yet. Raises: the error that the broker would repeat.
        """
        failed = [attempt.error for attempt in self.failed if attempt.broker == (broker or NOWHERE)]
        if not failed:
            return 0.0
        if failed[-1].code in ELSEWHERE:
            raise self._ended()
        policy = self.policy
        pause_s = min(policy.backoff * 2.0 ** min(len(failed) - 1, 16), policy.backoff_max)
        # With jitter: a thousand sends may wait for one broker.
        return min(pause_s * self.random.uniform(0.5, 1.0), self.left_s())

    def _ended(self) -> AerobeeError:
        self.over = True
        if not self.failed:
            text = f"sending to topic {self.topic}: no time left to try"
            return RequestTimeoutError(text).about(topic=self.topic)
        last = self.failed[-1].error
        if all(
            failure.broker == NOWHERE or failure.error.code in ELSEWHERE for failure in self.failed
        ):
            # A single error needs no summary.
            return last
        return SendFailedError(f"sending to topic {self.topic}", self.failed, self.topic)
