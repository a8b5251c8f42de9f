"""The signature of a 5.x client."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS, signer_of
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.head import RequestHead

DATE = "20261122T035000Z"
RIGHT = "6cd4bfd25e1cee2754b45502dda2600654274ec1"
"""Of this date with the secret sk1, as the clients of RocketMQ make it."""
SIGNED = "MQv2-HMAC-SHA1 Credential=ak1{}, SignedHeaders=x-mq-date-time, Signature={}"


def head_of(authorization: str = "", date: str = DATE) -> RequestHead:
    """The head of a call that is signed so."""
    call = ((b":method", b"POST"), (b"content-type", b"application/grpc"))
    signed = ((b"authorization", authorization.encode()), (b"x-mq-date-time", date.encode()))
    return RequestHead([*call, *signed])


@pytest.mark.parametrize("scope", ["", "/region/service"])
@pytest.mark.parametrize("signature", [RIGHT, RIGHT.upper()])
def test_a_signature_proves_the_secret(scope: str, signature: str) -> None:
    signer = signer_of(head_of(SIGNED.format(scope, signature)))
    assert signer.access_key == "ak1"
    assert signer.proof(b"sk1")
    assert not signer.proof(b"sk2")


def test_a_wrong_signature_proves_nothing() -> None:
    for signature in (RIGHT[:-1] + "2", "", "ü"):
        assert not signer_of(head_of(SIGNED.format("", signature))).proof(b"sk1")


def test_without_a_signature_it_is_nobody() -> None:
    assert signer_of(head_of()) == NOBODY_SIGNS
    assert not NOBODY_SIGNS.proof(b"")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (head_of(SIGNED.format("", RIGHT), date=""), "datetime is null"),
        (head_of("MQv2-HMAC-SHA1 Credential=ak1"), "keyValues length is incorrect"),
        (head_of("nonsense"), "keyValues length is incorrect"),
    ],
)
def test_what_cannot_be_read_is_refused(head: RequestHead, why: str) -> None:
    with pytest.raises(RpcRefused, match=why) as refused:
        signer_of(head)
    assert refused.value.code is Code.UNAUTHORIZED
