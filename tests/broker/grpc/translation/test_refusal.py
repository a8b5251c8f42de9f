"""Answers of the broker in the codes of the 5.x clients."""

from __future__ import annotations

import pytest

from aerobee.broker.access.authority import NOBODY, NOT_SIGNED
from aerobee.broker.access.plain_authority import PlainAuthority
from aerobee.broker.grpc.translation.refusal import CODES, RpcRefused, outcome, quoted
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode


def test_success_is_ok_and_says_so() -> None:
    assert outcome(Answer(remark="whatever")) == (Code.OK, "OK")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, Code.NOT_IMPLEMENTED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.SERVICE_NOT_AVAILABLE, Code.INTERNAL_SERVER_ERROR),
        (4711, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_refusal_keeps_its_reason(code: int, told: Code) -> None:
    assert outcome(Answer(code, remark="why")) == (told, "why")


@pytest.mark.parametrize("remark", [NOBODY, NOT_SIGNED])
def test_who_is_not_known_is_unauthorized(remark: str) -> None:
    refused = Answer(int(ResponseCode.NO_PERMISSION), remark=remark)
    assert outcome(refused) == (Code.UNAUTHORIZED, remark)


def test_who_is_known_and_may_not_is_forbidden() -> None:
    refused = Answer(int(ResponseCode.NO_PERMISSION), remark="no matched policies.")
    assert outcome(refused)[0] is Code.FORBIDDEN


@pytest.mark.parametrize("access_key", ["", "somebody"])
def test_acl_1_tells_who_is_not_known_likewise(access_key: str) -> None:
    authority = PlainAuthority()
    remark = authority.not_authenticated(access_key)
    assert outcome(authority.refusal(remark)) == (Code.UNAUTHORIZED, remark)


def test_acl_1_tells_who_is_known_and_may_not_likewise() -> None:
    refused = PlainAuthority().refusal("No default permission for orders")
    assert outcome(refused) == (Code.FORBIDDEN, "No default permission for orders")


def test_nothing_to_receive_is_told_in_the_words_that_clients_know() -> None:
    timed_out = Answer(int(ResponseCode.POLLING_TIMEOUT))
    assert outcome(timed_out) == (Code.MESSAGE_NOT_FOUND, "no new message")


def test_only_overload_makes_clients_back_off() -> None:
    backing_off = {code for code, told in CODES.items() if told is Code.TOO_MANY_REQUESTS}
    assert backing_off == {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.POLLING_FULL,
    }


def test_long_texts_of_clients_are_cut() -> None:
    assert len(quoted("x" * 1_000)) == 102
    assert str(RpcRefused(Code.BAD_REQUEST, "why")) == "why"
