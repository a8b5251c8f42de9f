"""The signature of a 5.x client: HMAC-SHA1 over the date that it sends, with its secret.

The date is not compared with the clock, as in RocketMQ: TLS keeps others from reading it. Source:
grpc §1.3 (DefaultAuthenticationContextBuilder).
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code

if TYPE_CHECKING:
    from aerobee.remoting.grpc.head import RequestHead

CREDENTIAL: Final = "Credential"
SIGNATURE: Final = "Signature"


class Signer(NamedTuple):
    """The sender of a call, as it says itself."""

    access_key: str
    date: bytes
    signature: str

    def proof(self, secret: bytes) -> bool:
        """Whether the signature was made with this secret."""
        if not self.signature:
            return False
        right = hmac.digest(secret, self.date, "sha1").hex()
        return hmac.compare_digest(right.encode(), self.signature.lower().encode())


NOBODY_SIGNS: Final = Signer("", b"", "")


def signer_of(head: RequestHead) -> Signer:
    """The sender of a call, by its metadata. Raises: RpcRefused for what cannot be read."""
    text: str = head.text(b"authorization")
    date: str = head.text(b"x-mq-date-time")
    if not text:
        return NOBODY_SIGNS
    parts = dict(
        part.strip().partition("=")[::2] for part in text.partition(" ")[2].split(",") if part
    )
    if not {CREDENTIAL, SIGNATURE} <= parts.keys():
        raise RpcRefused(
            Code.UNAUTHORIZED,
            "authentication keyValues length is incorrect: the authorization names Credential,"
            " SignedHeaders and Signature",
        )
    if not date:
        raise RpcRefused(Code.UNAUTHORIZED, "datetime is null.")
    access_key = parts[CREDENTIAL].partition("/")[0]
    return Signer(access_key, date.encode(), parts[SIGNATURE])
