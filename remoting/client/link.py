"""How connections are made: encryption, fields that every request carries, names on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import socket
    import ssl

    from aerobee.remoting.wire.command import Command

Dress: TypeAlias = Callable[[int, dict[str, str], bytes], dict[str, str]]
"""Maps the code, the fields and the body of a request to the fields that are sent, with a signature
for example."""


Shortcut: TypeAlias = Callable[[str], "socket.socket | None"]
"""Maps an address to a connected socket, without TLS; None: connect as to any other. Raises:
OSError."""


class Names(Protocol):
    """Translates names of topics and groups between the client and the wire."""

    def request(
        self, code: int, fields: dict[str, str], body: bytes
    ) -> tuple[dict[str, str], bytes]:
        """The fields and the body of a request as they are sent."""

    def answer(self, body: bytes) -> bytes:
        """The body of a response to a request of the server, as it is sent."""

    def arrived(self, command: Command) -> Command:
        """A received command with the names that the client uses."""


@dataclass(frozen=True, slots=True)
class Link:
    """How connections are made."""

    dress: Dress | None = None
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    """The host name that certificates are checked for; by default the host of the address."""
    names: Names | None = None
    """Translates names; it is applied to a request before `dress`."""
    shortcut: Shortcut | None = None
    """Connects to addresses in this process; blocking connections ask it first."""


PLAIN = Link()
