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
    from collections.abc import Mapping

__all__ = ["ACCESS_KEY", "SECURITY_TOKEN", "SIGNATURE", "is_signed", "signature", "with_signature"]

ACCESS_KEY: Final = "AccessKey"
"""The field with the name of the account."""
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNSIGNED_FLAG: Final = "_UNIQUE_KEY_QUERY"
"""The field that clients up to 4.9.3 add to a query after they have signed it."""


def signature(secret: bytes, fields: Mapping[str, str], body: bytes | memoryview) -> str:
    """The signature of a request in Base64; a signature among the fields does not count."""
    names = sorted(fields)
    if not "".join(names).isascii():
        names.sort(key=lambda name: name.encode("utf-16-be"))
    content = "".join([fields[name] for name in names if name != SIGNATURE]).encode()
    return b64encode(hmac.digest(secret, content + body, "sha1")).decode()


def with_signature(
    access_key: str, secret: bytes, fields: Mapping[str, str], body: bytes | memoryview
) -> dict[str, str]:
    """The fields of a request with the account and the signature of all of it."""
    signed = {**fields, ACCESS_KEY: access_key}
    signed[SIGNATURE] = signature(secret, signed, body)
    return signed


def is_signed(secret: bytes, fields: Mapping[str, str], body: bytes | memoryview) -> bool:
    """Whether the request carries its signature. The comparison takes the same time for all."""
    given = fields.get(SIGNATURE, "").encode()
    if hmac.compare_digest(signature(secret, fields, body).encode(), given):
        return True
    if UNSIGNED_FLAG not in fields:
        return False
    signed = {name: text for name, text in fields.items() if name != UNSIGNED_FLAG}
    return hmac.compare_digest(signature(secret, signed, body).encode(), given)
