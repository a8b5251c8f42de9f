"""Ids of transactions: they say where the half message lies, so that nothing has to be kept.

The clients send an id back as it is. It is good after a restart, and for as long as the half lives.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.remoting.grpc.enums import Code

TEXT: Final = re.compile(r"([0-9a-f]{1,15})\.([0-9a-f]{1,15})\.(.*)", re.DOTALL)


class TransactionId(NamedTuple):
    """A half message, and the id that its producer gave it."""

    physical_offset: int
    queue_offset: int
    message_id: str

    def text(self) -> str:
        """The text that the client keeps."""
        return f"{self.physical_offset:x}.{self.queue_offset:x}.{self.message_id}"


def read_transaction_id(text: str) -> TransactionId:
    """Parse an id. Raises: RpcRefused."""
    parts = TEXT.fullmatch(text)
    if not text.strip() or parts is None:
        what = f"{quoted(text)} is no transaction id of this broker" if text else "it is empty"
        raise RpcRefused(Code.INVALID_TRANSACTION_ID, f"transaction id: {what}")
    return TransactionId(int(parts[1], 16), int(parts[2], 16), parts[3])
