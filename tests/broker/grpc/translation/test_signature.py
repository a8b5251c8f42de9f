"""The signature of a 5.x client."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS, signer_of
from aerobee.remoting.grpc.enums import Code

DATE = "20261122T035000Z"
RIGHT = "6cd4bfd25e1cee2754b45502dda2600654274ec1"
"""Of this date with the secret sk1, as the clients of RocketMQ make it."""
SIGNED = "MQv2-HMAC-SHA1 Credential=ak1{}, SignedHeaders=x-mq-date-time, Signature={}"


class Head:
    def __init__(self, authorization: str = "", date: str = DATE) -> None:
        self.fields = {b"authorization": authorization, b"x-mq-date-time": date}

    def text(self, name: bytes) -> str:
        return self.fields[name]


@pytest.mark.parametrize("scope", ["", "/region/service"])
@pytest.mark.parametrize("signature", [RIGHT, RIGHT.upper()])
def test_a_signature_proves_the_secret(scope: str, signature: str) -> None:
    signer = signer_of(Head(SIGNED.format(scope, signature)))
    assert signer.access_key == "ak1"
    assert signer.proof(b"sk1")
    assert not signer.proof(b"sk2")


def test_a_wrong_signature_proves_nothing() -> None:
    for signature in (RIGHT[:-1] + "2", "", "ü"):
        assert not signer_of(Head(SIGNED.format("", signature))).proof(b"sk1")


def test_without_a_signature_it_is_nobody() -> None:
    assert signer_of(Head()) == NOBODY_SIGNS
    assert not NOBODY_SIGNS.proof(b"")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (Head(SIGNED.format("", RIGHT), date=""), "datetime is null"),
        (Head("MQv2-HMAC-SHA1 Credential=ak1"), "keyValues length is incorrect"),
        (Head("nonsense"), "keyValues length is incorrect"),
    ],
)
def test_what_cannot_be_read_is_refused(head: Head, why: str) -> None:
    with pytest.raises(RpcRefused, match=why) as refused:
        signer_of(head)
    assert refused.value.code is Code.UNAUTHORIZED
