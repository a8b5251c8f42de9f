"""The signature of a request: HMAC-SHA1 over the values of its fields and its body.

The content is the values of all ext fields, ordered by name in UTF-16 code units, as UTF-8, then
the body; the field `Signature` carries its HMAC in Base64. It has no nonce and no time, so a
recorded request can be sent again: TLS is the remedy. Source: semantics §18.1 (AclClientRPCHook).

Neither the code nor the names of the fields are in it, so who gets one request can cut its text
into another one. A text that begins with `ONLY_FOR` therefore names the one request code that it
is good for. All requests that this package signs have such a text, in a field whose name comes
before all others; RocketMQ signs the field like any other, and does not look at it.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ACCESS_KEY: Final = "AccessKey"
"""The field with the name of the account."""
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
STEP_BYTES: Final = 1 << 20
"""About half a millisecond of HMAC-SHA1."""
BOUND: Final = "!"
"""The field that comes first."""
ONLY_FOR: Final = "!only for request code "
"""How a text begins that is good for one code, which follows, with a semicolon."""
HEAD_BYTES: Final = len(ONLY_FOR) + 12
"""No shorter than such a beginning."""
UNSIGNED_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""The field that clients up to 4.9.3 add to a query after they have signed it."""


def signature(secret: bytes, fields: Mapping[str, str], body: bytes | memoryview) -> str:
    """The signature of a request in Base64; a signature among the fields does not count."""
    return b64encode(hmac.digest(secret, content_of(fields) + body, "sha1")).decode()


def content_of(fields: Mapping[str, str]) -> bytes:
    """The signed bytes of the fields."""
    names = sorted(fields)
    if not "".join(names).isascii():
        names.sort(key=lambda name: name.encode("utf-16-be"))
    return "".join([fields[name] for name in names if name != SIGNATURE]).encode()


def with_signature(
    access_key: str,
    secret: bytes,
    fields: Mapping[str, str],
    body: bytes | memoryview,
    *,
    code: int | None = None,
) -> dict[str, str]:
    """The fields of a request with the account and the signature of all of it, which is good for
    requests of this `code` only.
    """
    signed = {**fields, ACCESS_KEY: access_key}
    if code is not None:
        signed[BOUND] = only_for(code)
    signed[SIGNATURE] = signature(secret, signed, body)
    return signed


def is_signed(
    secret: bytes, fields: Mapping[str, str], body: bytes | memoryview, code: int
) -> bool:
    """Whether a request of this code carries its signature. The comparison takes the same time for
    all; only a request that has no signature costs nothing.
    """
    if SIGNATURE not in fields:
        return False
    claim = fields[SIGNATURE].encode()
    if hmac.compare_digest(signature(secret, fields, body).encode(), claim):
        return is_for(code, fields, body)
    if UNSIGNED_FLAG not in fields or body:
        return False
    signed = {name: text for name, text in fields.items() if name != UNSIGNED_FLAG}
    good = hmac.compare_digest(signature(secret, signed, body).encode(), claim)
    return good and is_for(code, signed, body)


def only_for(code: int) -> str:
    """The beginning of a text that is good for this code."""
    return f"{ONLY_FOR}{code};"


def is_for(code: int, fields: Mapping[str, str], body: bytes | memoryview) -> bool:
    """Whether a text that was signed may be a request of this code."""
    # An account's name comes first in other requests: this has to cost nothing.
    if fields[min(fields)][:1] not in ("", ONLY_FOR[0]):
        return True
    head = content_of(fields)[:HEAD_BYTES] + bytes(body[:HEAD_BYTES])
    return not head.startswith(ONLY_FOR.encode()) or head.startswith(only_for(code).encode())


def is_signed_in_steps(
    secret: bytes, fields: Mapping[str, str], body: bytes | memoryview, code: int
) -> Generator[None, None, bool]:
    """Whether a request with a long body is signed; each step reads `STEP_BYTES` of it."""
    mac = hmac.new(secret, content_of(fields), "sha1")
    for begin in range(0, len(body), STEP_BYTES):
        mac.update(memoryview(body)[begin : begin + STEP_BYTES])
        yield
    good = hmac.compare_digest(b64encode(mac.digest()), fields.get(SIGNATURE, "").encode())
    return good and is_for(code, fields, body)
