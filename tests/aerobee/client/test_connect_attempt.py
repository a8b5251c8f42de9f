"""Whoever waited for an attempt that failed fails with it; whoever comes later tries again."""

import pytest

from aerobee.client.connect_attempt import ConnectAttempt
from aerobee.remoting.errors import ConnectFailed


def fail(attempt: ConnectAttempt[None], why: str) -> None:
    with pytest.raises(ConnectFailed, match=why), attempt.noted():
        raise ConnectFailed(why)


def test_an_attempt_that_failed_meanwhile_is_not_made_once_more() -> None:
    attempt = ConnectAttempt(None)
    waits_since = attempt.turn
    attempt.check(waits_since)
    fail(attempt, "refused")
    with pytest.raises(ConnectFailed, match="refused"):
        attempt.check(waits_since)
    attempt.check(attempt.turn)


def test_a_connection_ends_the_failure_of_before() -> None:
    attempt = ConnectAttempt(None)
    waits_since = attempt.turn
    fail(attempt, "refused")
    with attempt.noted():
        pass
    attempt.check(waits_since)
