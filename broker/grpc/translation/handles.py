"""Receipt handles as the 5.x clients keep them: the receipt of a pop and the place of the record.

A text of nine parts, which clients send back as it is. Source: grpc §2.6 (ReceiptHandle).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.broker.pop.pop_records import (
    RECEIPT_PARTS,
    Receipt,
    receipt_of,
    retry_topic_v1,
    retry_topic_v2,
)
from aerobee.remoting.errors import BodyError
from aerobee.remoting.grpc.enums import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLACE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
TOPICS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "0": lambda topic, group: topic,
    "1": retry_topic_v1,
    "2": retry_topic_v2,
}
"""The topic that a message came from, by the `retry` of its receipt."""


class Handle(NamedTuple):
    """A receipt, and the physical offset of its record."""

    receipt: Receipt
    physical_offset: int

    def text(self) -> str:
        """The text that the client keeps."""
        return f"{self.receipt.text()} {self.physical_offset}"

    @property
    def visible_ms(self) -> int:
        """When the message is delivered again; from then on the handle is good for nothing."""
        return self.receipt.pop_time + self.receipt.invisible_time

    def topic(self, topic: str, group: str) -> str:
        """The topic that the message was popped from: its own, or a retry topic of the group."""
        return TOPICS[self.receipt.retry](topic, group)

    def hidden_again(self, pop_time: int, invisible_ms: int, revive_qid: int) -> Handle:
        """The handle of the same message after a change of its invisible time."""
        return self._replace(
            receipt=self.receipt._replace(
                pop_time=pop_time,
                invisible_time=invisible_ms,
                revive_qid=revive_qid,
                # The new check point is of this message alone.
                start_offset=self.receipt.start_offset
                if self.receipt.in_order
                else self.receipt.offset,
            )
        )


def read_handle(text: str) -> Handle:
    """Parse a handle. Raises: RpcRefused."""
    receipt, _, place = text.rpartition(" ")
    whole = text.count(" ") == RECEIPT_PARTS and PLACE.fullmatch(place) is not None
    try:
        handle = Handle(receipt_of(receipt), int(place)) if whole else None
    except BodyError:
        handle = None
    if handle is None or handle.receipt.retry not in TOPICS:
        raise RpcRefused(
            Code.INVALID_RECEIPT_HANDLE, f"{quoted(text)} is no receipt handle of this broker"
        )
    return handle


def check_own(handle: Handle, broker: str) -> None:
    """Refuse a handle whose message lies at another broker. Raises: RpcRefused."""
    theirs = handle.receipt.broker
    if theirs != broker:
        raise RpcRefused(
            Code.INVALID_RECEIPT_HANDLE,
            f"the message lies at broker {quoted(theirs)}, and this is {broker}: endpoints name"
            " the members of one group alone",
        )


def check_current(handle: Handle, now_ms: int) -> None:
    """Refuse a handle whose message is visible again. Raises: RpcRefused."""
    if handle.visible_ms < now_ms:
        raise RpcRefused(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
