"""The result of a handler: code, typed header, remark, body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.remoting.wire.header import Header


class Answer(msgspec.Struct, frozen=True):
    """One answer before it is encoded in the encoding of its request.

    `body` is one buffer or a sequence of views that are sent without a copy; a view keeps its file
    mapped.
    """

    code: int = 0
    header: Header | None = None
    remark: str | None = None
    body: bytes | Sequence[bytes | memoryview] = b""
