"""The reactor of the broker, and the work at the end of each of its rounds.

At the end of a round its messages are dispatched to their queues, and the requests that were held
for them are answered before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker import answers
from aerobee.broker.pools.pools import make_pools, set_waits
from aerobee.broker.pools.slow_rounds import SlowRounds
from aerobee.broker.process.host import descriptor_limit
from aerobee.remoting.server.reactor import Reactor
from aerobee.remoting.server.selector import Hooks
from aerobee.remoting.server.shared import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.core.feature import HeldRequests
    from aerobee.remoting.config import RemotingConfig
    from aerobee.remoting.server.connection import Connection
    from aerobee.store.clock import Clock
    from aerobee.store.message_store import MessageStore
    from aerobee.store.stats import Durations

NEW_WORK: Final = ("send", "pull", "lite_pull", "reply", "query", "load_balance")
"""The pools of the requests that a client may make of another broker as well. A notice about its
messages here (offsets, acknowledgements, ends of transactions) is taken until the end.
"""


class Rounds:
    """Rounds over one store. `slow_puts` gets the put times of slow rounds."""

    def __init__(
        self, config: RemotingConfig, store: MessageStore, slow_puts: Durations, clock: Clock
    ) -> None:
        self._store = store
        self._config = config
        pools = make_pools(config)
        self.slow = SlowRounds(
            store.dispatcher,
            pool=pools["send"],
            puts=slow_puts,
            clock=clock,
            limit_ms=lambda: config.os_page_cache_busy_time_out_ms,
        )
        self.reactor = Reactor(
            pools=pools,
            limits=limits_of(config),
            selectors=config.server_selector_threads,
            refusals=answers.refusal,
            hooks=Hooks(self.after_round, self.slow.look),
            connected=self.connected,
        )
        self.flush = self.reactor.flush
        """Send every answer that is ready."""
        self.held: list[HeldRequests] = []
        """The holders of requests, in the order in which they are woken."""
        self.when_closed: list[Callable[[Connection], None]] = []
        """Called for each closed connection."""
        store.after_flush.add(self.after_flush)
        store.after_wait.add(self.reactor.resume)
        store.after_stall.add(self.reactor.stalled)

    def after_round(self) -> None:
        """Dispatch the messages of a round, and run the held requests that waited for them."""
        dispatch = self._store.dispatch
        dispatch()
        for held in self.held:
            left = held.at_once
            while left and (ran := held.wake(left)):
                # Dispatch what these requests have put, so that it continues in this round, unless
                # that takes a step of its own.
                left = 0 if dispatch() else left - ran

    def finish(self) -> None:
        """Called by a service after its own puts: as at the end of a round, and answers are
        sent.
        """
        self.after_round()
        self.reactor.flush()

    def after_flush(self) -> None:
        """Called after a sync, which answered producers and made more messages visible."""
        for held in self.held:
            held.wake()
        self.reactor.flush()

    def leave(self) -> None:
        """Take no new work; requests about work that was handed out before are served."""
        self.reactor.leave(NEW_WORK)

    def settings_changed(self) -> None:
        """Take the waits of the pools and the limits of clients from the settings."""
        set_waits(self.reactor.pools, self._config)
        self.reactor.allow(limits_of(self._config))

    @property
    def waking(self) -> bool:
        """Whether woken requests are still to be answered."""
        return any(held.waking for held in self.held)

    def connected(self, connection: Connection) -> None:
        """Count a new client connection."""
        connection.on_close.append(self._closed)

    def _closed(self, connection: Connection, reason: str) -> None:
        for held in self.held:
            held.closed(connection)
        for closed in self.when_closed:
            closed(connection)


def limits_of(config: RemotingConfig) -> Limits:
    """The limits of each connection, and of all together, from the settings."""
    return Limits(
        max_frame_bytes=config.max_frame_bytes,
        max_header_bytes=config.max_header_bytes,
        high_water_bytes=config.high_water_bytes,
        low_water_bytes=config.low_water_bytes,
        idle_s=config.server_channel_max_idle_time_s,
        stall_s=config.write_stall_timeout_ms / 1000,
        inbound_bytes=config.max_inbound_buffer_bytes,
        unauthenticated_bytes=config.max_unauthenticated_buffer_bytes,
        outbound_bytes=config.max_outbound_buffer_bytes,
        least_per_s=config.write_least_rate,
        first_request_s=config.first_request_timeout_ms / 1000,
        max_connections=config.max_connections,
        connections_of_address=config.max_connections_of_address,
        requests_per_s_of_address=config.max_request_rate_of_address,
        requests_per_s_of_user=config.max_request_rate_of_user,
        bytes_per_s_of_address=config.max_byte_rate_of_address,
        bytes_per_s_of_user=config.max_byte_rate_of_user,
        descriptors=descriptor_limit(),
    )
