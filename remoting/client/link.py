"""What a connection has beyond an address: fields that every request gets, and encryption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import ssl

__all__ = ["PLAIN", "Dress", "Link"]

Dress: TypeAlias = Callable[[dict[str, str], bytes], dict[str, str]]
"""From the fields of a request and its body to the fields that are sent, such as a signature."""


@dataclass(frozen=True, slots=True)
class Link:
    """How connections are made."""

    dress: Dress | None = None
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    """The name that certificates are checked for; the host of the address if there is none."""


PLAIN = Link()
