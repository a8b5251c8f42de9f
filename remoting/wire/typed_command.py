"""A request whose header is typed from the start: it came in another form than a frame.

Its answer goes to a function. Where requests need an account, its sender has shown one in
another way than by a signature among the ext fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.header import Header
from aerobee.remoting.wire.request_signature import ACCESS_KEY

if TYPE_CHECKING:
    from aerobee.remoting.wire.answer import Answer

H = TypeVar("H", bound=Header)


def unproven(secret: bytes) -> bool:
    """Of a sender who has shown nothing."""
    return False


class TypedCommand(Command, kw_only=True, gc=True):
    """The request, and what becomes of its answer."""

    typed: Any
    """Its header."""
    reply: Any
    """Called with the answer, once: `reply(answer)`."""
    access_key: str = ""
    """Whom the sender claims to be; empty: nobody."""
    proof: Any = unproven
    """`proof(secret)`: whether the sender knows the secret of that account."""

    def header(self, cls: type[H]) -> H:
        """The header, which is of this class."""
        typed = self.typed
        assert isinstance(typed, cls), f"{type(typed).__name__} for {cls.__name__}"
        return typed

    def ext_fields(self) -> dict[str, str]:
        """The fields of the header as texts, and the account."""
        fields: dict[str, str] = self.typed.ext()
        return {**fields, ACCESS_KEY: self.access_key} if self.access_key else fields


Reply = Callable[["Answer"], None]
"""A function that takes an answer."""
