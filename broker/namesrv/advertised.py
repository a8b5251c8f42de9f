"""Which address the embedded name server gives out for its own broker, by who asks.

Behind a container or a second network card one address does not fit all: the first rule whose
network holds the asking client wins; then an address given explicitly; else the one that the client
reached us at. Source: configuration §2.5 (`advertised`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Advertised", "AdvertisedRule", "parse_rules"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AdvertisedRule(NamedTuple):
    """Clients in `network` get `address` (`host:port`)."""

    network: Network
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """The choice. `host` is advertisedHost, or brokerIP1 where that was given."""

    listen_port: int
    host: str | None = None
    rules: tuple[AdvertisedRule, ...] = ()

    def address_for(self, client_address: str, local_address: str) -> str:
        """Which address a client gets, by its own and by our end of its connection (`ip:port`)."""
        client = ipaddress.ip_address(host_of(client_address))
        for rule in self.rules:
            if client in rule.network:
                return rule.address
        return with_port(self.host or host_of(local_address), self.listen_port)


def parse_rules(
    rules: str | Iterable[Mapping[str, str]] | None, default_port: int
) -> tuple[AdvertisedRule, ...]:
    """`network=address;…` or a list of `{network, address}` → rules.

    An address without a port gets `default_port`. Raises: ValueError naming the rule.
    """
    if rules is None:
        return ()
    if isinstance(rules, str):
        pairs = [item.partition("=")[::2] for item in rules.split(";") if item.strip()]
    else:
        pairs = [(item.get("network", ""), item.get("address", "")) for item in rules]
    return tuple(
        parse_rule(network.strip(), address.strip(), default_port) for network, address in pairs
    )


def parse_rule(network: str, address: str, default_port: int) -> AdvertisedRule:
    """One rule. Raises: ValueError."""
    if not address:
        raise ValueError(f"advertised: {network or 'a rule'} has no address")
    has_port = ":" in address.rpartition("]")[2]
    return AdvertisedRule(
        ipaddress.ip_network(network),
        address if has_port else f"{address}:{default_port}",
    )


def host_of(address: str) -> str:
    """`ip:port` → ip, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def with_port(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
