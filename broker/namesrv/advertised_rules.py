"""`advertised`: what the embedded name server answers about this broker, by who asks.

Text form: `10.0.0.0/8=broker.lan:10911;…`, the port optional, the first match wins.
Source: configuration §2.5.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.config.files.entries import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.config.files.entries import Tree

__all__ = ["Advertised", "for_client", "from_mapping", "normalized", "parse"]

HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:;=\[\]]+)(?::(\d{1,5}))?", re.ASCII)


class Advertised(NamedTuple):
    """Clients of `network` get `host` and `port`; 0 is the broker's own port."""

    network: IPv4Network | IPv6Network
    host: str
    port: int


def parse(text: str) -> tuple[Advertised, ...]:
    """The rules of the text form, in order. Raises: ValueError with a sentence."""
    return tuple(rule(part) for part in text.split(";") if part.strip())


def rule(text: str) -> Advertised:
    """One rule, `network=host` or `network=host:port`."""
    network, _, address = text.partition("=")
    try:
        asked_from = ip_network(network.strip())
    except ValueError as error:
        raise ValueError(f"{network.strip()} is not a network, such as 10.0.0.0/8") from error
    match = HOST_AND_PORT.fullmatch(address.strip())
    port = int(match[2] or 0) if match else 65_536
    if match is None or port > 65_535:
        raise ValueError(f"{address.strip() or 'nothing'} is not host or host:port")
    return Advertised(asked_from, match[1].strip("[]"), port)


def normalized(text: str) -> str:
    """The text form without needless blanks, checked."""
    parse(text)
    rules = (part.partition("=") for part in text.split(";") if part.strip())
    return ";".join(f"{network.strip()}={address.strip()}" for network, _, address in rules)


def from_mapping(item: Mapping[str, Tree]) -> str:
    """One item of the YAML list as text."""
    network, address = item.get("network"), item.get("address")
    if set(item) != {"network", "address"}:
        raise ValueError("an item has network and address, nothing else")
    if not isinstance(network, Scalar) or not isinstance(address, Scalar):
        raise ValueError("network and address are texts")
    return f"{network.text}={address.text}"


def for_client(rules: Sequence[Advertised], client: str) -> Advertised | None:
    """The first rule whose network the client's IP address belongs to."""
    asking = ip_address(client)
    return next((rule for rule in rules if asking in rule.network), None)
