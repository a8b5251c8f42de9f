"""How connections are made: encryption, and fields that every request carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import ssl

__all__ = ["PLAIN", "Dress", "Link"]

Dress: TypeAlias = Callable[[dict[str, str], bytes], dict[str, str]]
"""Maps the fields and body of a request to the fields that are sent, with a signature for
example."""


@dataclass(frozen=True, slots=True)
class Link:
    """How connections are made."""

    dress: Dress | None = None
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    """The host name that certificates are checked for; by default the host of the address."""


PLAIN = Link()
