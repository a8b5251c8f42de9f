"""Accepts the connections of slaves and gives each to the store, which sends them the log.

A slave speaks first, and its first byte tells whether it speaks TLS, as on the other ports.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AsyncExitStack
from socket import MSG_PEEK
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.access.policies import network_of
from aerobee.remoting.client.calls import reason_of
from aerobee.remoting.server import boss
from aerobee.remoting.server.addresses import ip_of
from aerobee.remoting.server.log_limit import LogLimit
from aerobee.remoting.server.tls_handshakes import HANDSHAKE_RECORD
from aerobee.store.replication.log_out import Pace

if TYPE_CHECKING:
    import socket
    import ssl

    from aerobee.broker.core.core import Core

BACKLOG: Final = 64
SLAVES_MAX: Final = 64
"""So many connections of slaves at once; one more is closed."""
OF_HOST_MAX: Final = 4
"""So many of them from one address: a slave that comes again has an old one for a while."""

GATHER_S: Final = 0.003
"""The least time between two sends to a slave that nobody waits for: a send and its report take the
master 150 µs."""
WORDS: Final = 6
"""So many reports are sent, at least, within the time after which a member of a group is late."""

log = structlog.stdlib.get_logger(__name__)


async def encrypted(
    stream: trio.SocketStream, context: ssl.SSLContext, *, master_host: str | None
) -> trio.SSLStream[trio.SocketStream]:
    """A connection of the replication through TLS, at the slave's end that to `master_host`.

    Raises: OSError that says why the two do not agree; the connection is closed then.
    """
    wrapped = trio.SSLStream(
        # No connection ends in the midst of a frame that counts, so its last word says nothing.
        stream,
        context,
        server_hostname=master_host,
        server_side=master_host is None,
        https_compatible=True,
    )
    async with AsyncExitStack() as unless_agreed:
        unless_agreed.push_async_callback(trio.aclose_forcefully, stream)
        try:
            await wrapped.do_handshake()
        except trio.BrokenResourceError as error:
            raise OSError(reason_of(error)) from error
        unless_agreed.pop_all()
    return wrapped


def pace_of(core: Core) -> Pace:
    """The times of the connections, from the settings; the same on either side."""
    config, group = core.config.replication, core.config.failover
    heartbeat_ms = config.ha_send_heartbeat_interval_ms
    if group.is_on:
        heartbeat_ms = min(heartbeat_ms, group.ha_max_time_slave_not_catchup_ms // WORDS)
    return Pace(
        heartbeat_ms / 1000,
        config.ha_housekeeping_interval_ms / 1000,
        config.ha_transfer_batch_size_bytes,
        0.0 if core.config.needed_slaves or group.is_on else GATHER_S,
    )


class Peers:
    """The allow-list of slaves."""

    __slots__ = ("_networks",)

    def __init__(self, text: str) -> None:
        self._networks = [network_of(item) for item in text.split(";") if item]

    def admits(self, host: str) -> bool:
        """Whether a slave of this address is allowed; an IPv4 address may come as an IPv6 one."""
        address = ip_of(host)
        return any(address in network for network in self._networks)


class Slaves:
    """The port of the replication; without `haPeers` there is none."""

    def __init__(self, core: Core) -> None:
        self._config = core.config
        self._peers = Peers(core.config.replication.ha_peers)
        self._log_out = core.store.log_out
        self._log_out.pace = pace_of(core)
        self._context: ssl.SSLContext | None = None
        self._beginning: list[str] = []
        """The hosts of connections that have not said yet whether they speak TLS."""
        self._refusals: defaultdict[str, LogLimit] = defaultdict(lambda: LogLimit(1))
        self.refused = 0
        """Connections that were closed at once."""

    def accept_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS with every new connection that begins so."""
        self._context = context

    async def run(self, *, task_status: trio.TaskStatus[None]) -> NoReturn:
        """Serve slaves until cancelled. Raises: OSError when the port cannot be opened."""
        async with trio.open_nursery() as nursery:
            with trio.socket.from_stdlib_socket(self.listener()) as listener:
                task_status.started()
                while True:
                    try:
                        sock, address = await listener.accept()
                    except OSError as error:
                        if error.errno in boss.OVERLOADED:
                            await trio.sleep(boss.ACCEPT_PAUSE_S)
                        continue
                    self._accepted(nursery, sock, str(address[0]), int(address[1]))

    def listener(self) -> socket.socket:
        """The opened port. Raises: OSError naming the key."""
        host, port = self._config.remoting.bind_address, self._config.replication.ha_listen_port
        try:
            return boss.listen(host, port, BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"haListenPort is {port}: {error.strerror}") from error

    def _accepted(
        self, nursery: trio.Nursery, sock: trio.socket.SocketType, host: str, port: int
    ) -> None:
        peer = f"{host}:{port}"
        hosts = [*self._beginning, *(follower.host for follower in self._log_out.followers)]
        reason = ""
        if not self._peers.admits(host):
            reason = "haPeers does not list it"
        elif len(hosts) >= SLAVES_MAX:
            reason = f"{SLAVES_MAX} slaves are connected"
        elif hosts.count(host) >= OF_HOST_MAX:
            reason = f"{OF_HOST_MAX} connections of its address are open"
        if reason:
            self._refuse(peer, reason)
            sock.close()
            return
        self._beginning.append(host)
        nursery.start_soon(self._serve, trio.SocketStream(sock), host, peer)

    def _refuse(self, peer: str, reason: str) -> None:
        self.refused += 1
        left_out = self._refusals[reason].admit(trio.current_time())
        if left_out is not None:
            log.warning("replication.slave_refused", peer=peer, reason=reason, left_out=left_out)

    async def _serve(self, stream: trio.SocketStream, host: str, peer: str) -> None:
        """Find out how a slave speaks, then serve it."""
        begun: trio.abc.Stream | None = stream
        try:
            if self._context is not None:
                begun = await self._begun(stream, self._context, peer)
        finally:
            self._beginning.remove(host)
        if begun is None:
            await trio.aclose_forcefully(stream)
        else:
            await self._log_out.serve(begun, host, peer)

    async def _begun(
        self, stream: trio.SocketStream, context: ssl.SSLContext, peer: str
    ) -> trio.abc.Stream | None:
        """The connection, encrypted where the slave speaks TLS; None: it is refused."""
        reason = "it says nothing"
        with trio.move_on_after(self._log_out.pace.silence_s):
            try:
                first = await stream.socket.recv(1, MSG_PEEK)
                # A report begins with 0, as every offset below 2^56 does.
                if first == HANDSHAKE_RECORD:
                    return await encrypted(stream, context, master_host=None)
                if first and not self._config.replication.ha_tls:
                    return stream
                reason = "haTls is set, and it does not speak TLS" if first else "it has left"
            except OSError as error:
                reason = str(error) or type(error).__name__
        self._refuse(peer, reason)
        return None
