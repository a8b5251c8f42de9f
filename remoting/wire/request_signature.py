"""The signature of a request: HMAC-SHA1 over the values of its fields and its body.

The content is the values of all ext fields, ordered by name in UTF-16 code units, as UTF-8, then
the body; the field `Signature` carries its HMAC in Base64. It has no nonce and no time, so a
recorded request can be sent again: TLS is the remedy. Source: semantics §18.1 (AclClientRPCHook).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = [
    "ACCESS_KEY",
    "SECURITY_TOKEN",
    "SIGNATURE",
    "is_signed",
    "is_signed_in_steps",
    "signature",
    "with_signature",
]

ACCESS_KEY: Final = "AccessKey"
"""The field with the name of the account."""
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
STEP_BYTES: Final = 1 << 20
"""About half a millisecond of HMAC-SHA1."""
UNSIGNED_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""The field that clients up to 4.9.3 add to a query after they have signed it."""


def signature(secret: bytes, fields: Mapping[str, str], body: bytes | memoryview) -> str:
    """The signature of a request in Base64; a signature among the fields does not count."""
    return b64encode(hmac.digest(secret, content_of(fields) + body, "sha1")).decode()


def content_of(fields: Mapping[str, str]) -> bytes:
    """What is signed of the fields."""
    names = sorted(fields)
    if not "".join(names).isascii():
        names.sort(key=lambda name: name.encode("utf-16-be"))
    return "".join([fields[name] for name in names if name != SIGNATURE]).encode()


def with_signature(
    access_key: str, secret: bytes, fields: Mapping[str, str], body: bytes | memoryview
) -> dict[str, str]:
    """The fields of a request with the account and the signature of all of it."""
    signed = {**fields, ACCESS_KEY: access_key}
    signed[SIGNATURE] = signature(secret, signed, body)
    return signed


def is_signed(secret: bytes, fields: Mapping[str, str], body: bytes | memoryview) -> bool:
    """Whether the request carries its signature. The comparison takes the same time for all; only
    a request that has no signature costs nothing.
    """
    if SIGNATURE not in fields:
        return False
    given = fields[SIGNATURE].encode()
    if hmac.compare_digest(signature(secret, fields, body).encode(), given):
        return True
    if UNSIGNED_FLAG not in fields or body:
        return False
    signed = {name: text for name, text in fields.items() if name != UNSIGNED_FLAG}
    return hmac.compare_digest(signature(secret, signed, body).encode(), given)


def is_signed_in_steps(
    secret: bytes, fields: Mapping[str, str], body: bytes | memoryview
) -> Generator[None, None, bool]:
    """The same of a long body, of which each step reads `STEP_BYTES`."""
    mac = hmac.new(secret, content_of(fields), "sha1")
    for begin in range(0, len(body), STEP_BYTES):
        mac.update(memoryview(body)[begin : begin + STEP_BYTES])
        yield
    return hmac.compare_digest(b64encode(mac.digest()), fields.get(SIGNATURE, "").encode())
