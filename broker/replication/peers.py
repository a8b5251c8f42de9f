"""Which addresses may copy the log: a list of addresses and networks."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network
MAPPED_BITS: Final = 96
"""An address of IPv6 that stands for one of IPv4 has so many bits in front of it."""


class Peers:
    """The allow-list of slaves."""

    __slots__ = ("_networks",)

    def __init__(self, text: str) -> None:
        self._networks = [as_ipv4(ip_network(item)) for item in text.split(";") if item]

    def admits(self, host: str) -> bool:
        """Whether a slave of this address is allowed; an IPv4 address may come as an IPv6 one."""
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def as_ipv4(network: Network) -> Network:
    """The network of IPv4 that one of IPv6 stands for, as `::ffff:10.0.0.2`, or the same."""
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ip_network((mapped, network.prefixlen - MAPPED_BITS))
    return network
