"""`advertised`: the address of the broker in this process that the name server gives to a client.

Behind a container or a second network card one address does not fit all clients. The first rule
whose network contains the client wins; then an address that was set explicitly; else the address
that the client connected to. Text form of the rules: `10.0.0.0/8=broker.lan:10911;…`, the port
optional. An IPv4 client of an IPv6 listener is matched against the IPv4 networks.
Source: configuration §2.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.config.files.entries import Scalar
from aerobee.remoting.server.addresses import ip_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.config.files.entries import Tree

HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:;=\[\]]+)(?::(\d{1,5}))?", re.ASCII)


class AdvertisedRule(NamedTuple):
    """A rule: clients of `network` get `host` and `port`; None is advertisedPort, or listenPort."""

    network: IPv4Network | IPv6Network
    host: str
    port: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertisedAddress:
    """Chooses the address for a client. `host` is advertisedHost, or brokerIP1 if configured;
    `port` is advertisedPort, or listenPort.
    """

    port: int
    host: str | None = None
    rules: tuple[AdvertisedRule, ...] = ()

    def address_for(self, client_address: str, local_address: str) -> str:
        """The address for a client; both arguments are ends of its connection as `ip:port`."""
        if self.rules:
            client = ip_of(host_of(client_address))
            for rule in self.rules:
                if client in rule.network:
                    return with_port(rule.host, rule.port or self.port)
        return with_port(self.host or str(ip_of(host_of(local_address))), self.port)


def parse_rules(text: str) -> tuple[AdvertisedRule, ...]:
    """The rules of the text form, in order. Raises: ValueError with a message for people."""
    return tuple(rule(part) for part in text.split(";") if part.strip())


def rule(text: str) -> AdvertisedRule:
    """Parse one rule, `network=host` or `network=host:port`. Raises: ValueError."""
    network, _, address = text.partition("=")
    try:
        asked_from = ip_network(network.strip())
    except ValueError as error:
        raise ValueError(f"{network.strip()} is not a network, such as 10.0.0.0/8") from error
    match = HOST_AND_PORT.fullmatch(address.strip())
    port = int(match[2]) if match and match[2] else None
    if match is None or (port is not None and not 0 < port <= 65_535):
        raise ValueError(f"{address.strip() or 'nothing'} is not host or host:port")
    return AdvertisedRule(asked_from, match[1].strip("[]"), port)


def normalized(text: str) -> str:
    """Check the text form and remove needless blanks. Raises: ValueError."""
    parse_rules(text)
    rules = (part.partition("=") for part in text.split(";") if part.strip())
    return ";".join(f"{network.strip()}={address.strip()}" for network, _, address in rules)


def from_mapping(item: Mapping[str, Tree]) -> str:
    """One item of the YAML list in the text form. Raises: ValueError."""
    network, address = item.get("network"), item.get("address")
    if set(item) != {"network", "address"}:
        raise ValueError("an item has network and address, nothing else")
    if not isinstance(network, Scalar) or not isinstance(address, Scalar):
        raise ValueError("network and address are texts")
    return f"{network.text}={address.text}"


def host_of(address: str) -> str:
    """The ip of `ip:port`, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def with_port(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
