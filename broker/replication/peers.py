"""Which addresses may copy the log: a list of addresses and networks."""

from __future__ import annotations

from aerobee.broker.access.policies import network_of
from aerobee.remoting.server.addresses import ip_of


class Peers:
    """The allow-list of slaves."""

    __slots__ = ("_networks",)

    def __init__(self, text: str) -> None:
        self._networks = [network_of(item) for item in text.split(";") if item]

    def admits(self, host: str) -> bool:
        """Whether a slave of this address is allowed; an IPv4 address may come as an IPv6 one."""
        address = ip_of(host)
        return any(address in network for network in self._networks)
