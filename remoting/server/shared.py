"""The state that the connections of one process share, whichever selector they belong to."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.rate_limit import ClientRates
from aerobee.remoting.server.addresses import Addresses
from aerobee.remoting.server.arrivals import NO_SLOW_ROUND
from aerobee.remoting.server.inbound import InboundBudget
from aerobee.remoting.server.log_limit import LogLimit
from aerobee.remoting.server.long_requests import LongRequests
from aerobee.remoting.server.newcomers import Newcomers
from aerobee.remoting.server.outbound import OutboundBudget
from aerobee.remoting.stats import RemotingStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.peer import Newcomer, Peer
    from aerobee.remoting.server.poller import Poller
    from aerobee.remoting.server.run import Run
    from aerobee.remoting.server.tls_handshakes import Handshakes


class Limits(NamedTuple):
    """The limits of one connection, and of all together. Bytes, seconds."""

    max_frame_bytes: int
    max_header_bytes: int
    high_water_bytes: int
    low_water_bytes: int
    idle_s: float
    stall_s: float
    inbound_bytes: int = 128 << 20
    """The most that all connections together may keep of incomplete frames."""
    unauthenticated_bytes: int = 64 << 20
    """The most that those without an account may keep of them, where requests need one."""
    outbound_bytes: int = 256 << 20
    """Unsent bytes of all connections beyond which each is limited to its share."""
    least_per_s: int = 0
    """Bytes per second that a peer must read while data waits for it."""
    first_request_s: float = 30.0
    """How long a connection has until a request of it is let pass."""
    max_connections: int = 0
    """Open connections; 0: any."""
    connections_of_address: int = 0
    """Open connections of one client address; 0: any."""
    requests_per_s_of_address: int = 0
    """Requests per second of one client address; 0: any."""
    bytes_per_s_of_address: int = 0
    """Bytes of messages per second that it sends; 0: any."""
    requests_per_s_of_user: int = 0
    """Requests per second that one account signs; 0: any."""
    bytes_per_s_of_user: int = 0
    """Bytes of messages per second that it sends; 0: any."""
    descriptors: int | None = None
    """How many the process may have open; None: any."""


class SharedState:
    """Limits, counters and budgets of all connections, and the connections with answers queued.

    Answers may become ready in any round, or after a flush of the store: their connections wait in
    `outbox`, and the code that completes a batch calls `flush`, so that each connection sends once.
    """

    __slots__ = (
        "_numbers",
        "addresses",
        "handshakes",
        "inbound",
        "limits",
        "long_requests",
        "newcomers",
        "outbound",
        "outbox",
        "postponed",
        "postponed_to_sweep",
        "rejections",
        "slow_round",
        "stats",
        "unauthenticated",
        "users",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stats = RemotingStats()
        self.addresses = Addresses(limits.connections_of_address)
        self.newcomers = Newcomers(limits.first_request_s)
        self.users = ClientRates("maxRequestRateOfUser", "maxByteRateOfUser")
        """The requests of each account; the gate of access control takes them."""
        self.handshakes: Handshakes | None = None
        """None where no TLS is spoken."""
        self.outbox: list[Peer] = []
        self.postponed: list[Callable[[float], None]] = []
        """Called by `Reactor.resume`, with the time of the loop's clock."""
        self.postponed_to_sweep: list[Callable[[float], None]] = []
        """Called by the sweep of each second, with the time of the loop's clock."""
        self.inbound = InboundBudget(limits.inbound_bytes)
        self.unauthenticated: InboundBudget | None = None
        """Of connections that have not shown an account; None: requests need none."""
        self.outbound = OutboundBudget(limits.outbound_bytes, limits.high_water_bytes, self.stats)
        self.long_requests = LongRequests()
        self.rejections = LogLimit()
        """Limits `frame.rejected` for all selectors: any peer can provoke that line."""
        self.slow_round = NO_SLOW_ROUND
        """The last slow round of any selector."""
        self._numbers = 0
        self.allow(limits)

    def allow(self, limits: Limits) -> None:
        """Change the limits of each address and account."""
        self.newcomers.timeout_s = limits.first_request_s
        addresses = self.addresses
        addresses.max_connections = limits.connections_of_address
        addresses.rates.allow(limits.requests_per_s_of_address, limits.bytes_per_s_of_address)
        self.users.allow(limits.requests_per_s_of_user, limits.bytes_per_s_of_user)

    def opened(self, connection: Newcomer, now: float) -> None:
        """Count a connection."""
        self.addresses.opened(connection.host)
        self.newcomers.add(connection, now)

    def heard(self, connection: Newcomer) -> None:
        """A first whole request has come; where requests need an account, it shows nothing yet."""
        if self.unauthenticated is None:
            self.newcomers.remove(connection)

    def closed(self, connection: Newcomer) -> None:
        """Count it no more."""
        self.addresses.closed(connection.host)
        self.newcomers.remove(connection)

    @property
    def scarce(self) -> bool:
        """Whether connections should be read in small amounts."""
        newcomers = self.unauthenticated
        return self.inbound.scarce or (newcomers is not None and newcomers.scarce)

    def next_number(self) -> int:
        """A number for the next connection, unique in this process."""
        self._numbers += 1
        return self._numbers

    def flush(self) -> None:
        """Write every connection that has answers queued."""
        outbox = self.outbox
        if outbox:
            # A write may close a connection, whose callbacks may queue answers for others.
            for connection in outbox:
                connection.write()
            outbox.clear()
        latencies = self.stats.latencies
        if latencies.ended:
            latencies.sent(monotonic())


class SelectorContext:
    """The state that the connections of one selector share: its poller, its time, its next turns,
    and their requests that are served together.
    """

    __slots__ = (
        "may_join",
        "now",
        "outbox",
        "poller",
        "run",
        "share_bytes",
        "shared",
        "stats",
        "turn_ends",
        "waiting",
    )

    def __init__(self, shared: SharedState, poller: Poller, now: float) -> None:
        self.shared = shared
        self.poller = poller
        self.outbox = shared.outbox
        self.stats = shared.stats
        self.now = now
        """When the current turn began; seconds of `monotonic`."""
        self.turn_ends = 0.0
        self.waiting: dict[int, None] = {}
        """Descriptors of connections that continue in the next round in any case."""
        self.may_join = False
        """Whether a lone request may join a run now: others may follow in the same round."""
        self.run: Run | None = None
        """Requests of several connections that are to be served together."""
        self.share_bytes = 0
        """The most that one read takes in this round."""

    def serve_run(self) -> None:
        """Serve them now."""
        run, self.run = self.run, None
        if run is not None:
            run.serve()
