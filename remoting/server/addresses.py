"""The connections and requests of each client address, and their limits.

An IPv6 client counts by its network of 64 bits, in which it may choose any address.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Any, Final

from aerobee.remoting.rate_limit import ClientRates

PORT_BYTES: Final = 4
V6_NETWORK_BYTES: Final = 8
V6: Final = 6


def packed_host(address: tuple[Any, ...]) -> bytes:
    """Convert a socket address to a RocketMQ host: 4 or 16 bytes of address, then the port as i32.

    An IPv4 peer seen through a dual-stack socket is packed as IPv4.
    """
    return ip_of(address[0]).packed + struct.pack(">i", address[1])


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address of a socket; that of an IPv4 peer of a dual-stack socket is the IPv4 one.

    Raises: ValueError.
    """
    ip = ipaddress.ip_address(text.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


def host_text(host: bytes) -> str:
    """A packed host as `address:port`."""
    port = int.from_bytes(host[-PORT_BYTES:])
    return f"{ipaddress.ip_address(host[:-PORT_BYTES])}:{port}"


def source_of(host: bytes) -> bytes:
    """The part of a packed host that is counted as one client."""
    address = host[:-PORT_BYTES]
    return address if len(address) == PORT_BYTES else address[:V6_NETWORK_BYTES]


def source_named(address: str) -> str:
    """The part of an IP address that is counted as one client, as a text; what is no address stays
    as it is.
    """
    try:
        ip = ip_of(address)
    except ValueError:
        return address
    network = ip.packed[:V6_NETWORK_BYTES] if ip.version == V6 else ip.packed
    return network.hex()


class Addresses:
    """Open connections by client address; 0 is no limit.

    Invariant: `open` has the open connections of all selectors, and no zeros.
    """

    __slots__ = ("max_connections", "open", "rates")

    def __init__(self, max_connections: int = 0) -> None:
        self.max_connections = max_connections
        """The most connections of one address."""
        self.open: dict[bytes, int] = {}
        self.rates = ClientRates("maxRequestRateOfAddress", "maxByteRateOfAddress")

    def full(self, host: bytes) -> bool:
        """Whether one more connection of this host is too many."""
        return 0 < self.max_connections <= self.open.get(source_of(host), 0)

    def opened(self, host: bytes) -> None:
        """Count a connection."""
        source = source_of(host)
        self.open[source] = self.open.get(source, 0) + 1

    def closed(self, host: bytes) -> None:
        """Count it no more."""
        source = source_of(host)
        left = self.open[source] - 1
        if left:
            self.open[source] = left
        else:
            del self.open[source]

    def most(self) -> int:
        """Connections of the address that has most."""
        return max(self.open.values(), default=0)
