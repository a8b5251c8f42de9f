"""How long a receive waits, and how long its messages are hidden."""

from __future__ import annotations

from math import inf

import pytest

from aerobee.broker.grpc.translation.polling import (
    HIDDEN_MOST_MS,
    checked_hidden,
    hidden_ms,
    polling_ms,
    version_of,
)
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.messages import ReceiveMessageRequest

NEW = (5, 1, 2)


@pytest.mark.parametrize(
    ("asked_ms", "left_ms", "waits_ms"),
    [
        (7_000, 60_000, 7_000),
        (100, 60_000, 5_000),
        (60_000, 60_000, 20_000),
        (None, 11_500, 10_000),
        (None, 100_000, 20_000),
        (20_000, 9_000, 8_900),
        (20_000, 5_000, 4_900),
        (10_000, 10_000, 9_900),
        (None, inf, 20_000),
        (10_000, inf, 10_000),
    ],
)
def test_a_receive_is_answered_before_its_client_gives_up(
    asked_ms: int | None, left_ms: float, waits_ms: int
) -> None:
    assert polling_ms(asked_ms, left_ms, 3_000, NEW) == waits_ms


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.1.2", Code.ILLEGAL_POLLING_TIME),
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
def test_a_deadline_that_is_too_near_is_refused_with_a_code_that_the_client_knows(
    version: str, code: Code
) -> None:
    with pytest.raises(RpcRefused, match="4999 ms away") as refused:
        polling_ms(20_000, 4_999, 3_000, version_of(version))
    assert refused.value.code is code


def test_versions_are_numbers() -> None:
    assert version_of("5.1.2") == (5, 1, 2)
    assert version_of("5.x-snapshot") == (5, 0)


def test_messages_are_hidden_as_asked_or_for_as_long_as_they_are_renewed() -> None:
    request = ReceiveMessageRequest(auto_renew=True)
    assert hidden_ms(request) == 60_000
    request.auto_renew = False
    request.invisible_duration.FromMilliseconds(15_000)
    assert hidden_ms(request) == 15_000


@pytest.mark.parametrize(
    ("asked_ms", "why"), [(0, "min is 10000"), (9_999, "min is"), (HIDDEN_MOST_MS + 1, "max is")]
)
def test_an_invisible_time_beyond_its_limits_is_refused(asked_ms: int, why: str) -> None:
    request = ReceiveMessageRequest()
    request.invisible_duration.FromMilliseconds(asked_ms)
    with pytest.raises(RpcRefused, match=why) as refused:
        hidden_ms(request)
    assert refused.value.code is Code.ILLEGAL_INVISIBLE_TIME


def test_a_change_may_make_a_message_visible_at_once() -> None:
    assert checked_hidden(0) == 0
    with pytest.raises(RpcRefused, match="min is 0"):
        checked_hidden(-1)
