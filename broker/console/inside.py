"""Clients of the SDK inside the broker: their requests reach it as those of the viewer.

A client of a viewer has a connection of remoting to this broker, whose other end the reactor serves
as if it had come from the viewer's address: signed with the viewer's key, it passes gate, limits,
pools and audit as any request does. Other addresses are connected to over the network.
"""

from __future__ import annotations

import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from aerobee.blocking import AdminClient, Producer
from aerobee.cli.connection import CLI_GROUP, Connection
from aerobee.client.blocking.client import Client
from aerobee.client.security import Credentials, link_of
from aerobee.remoting.client.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aerobee.client.settings.client import ClientConfig, ClientOptions
    from aerobee.client.steps.effects import Effect
    from aerobee.remoting.wire.command import Command

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
ENDS: Final = ContextVar("ends", default=False)
"""Whether what runs in this thread ends with the task that waits for it."""


class InsideSockets:
    """Makes sockets whose other end the reactor serves. `take_in`: see `Reactor.take_in`."""

    def __init__(
        self,
        take_in: Callable[[socket.socket, tuple[Any, ...]], None],
        own: Callable[[str], Collection[str]],
    ) -> None:
        """`own`: the addresses under which clients at an address know this broker."""
        self._take_in = take_in
        self._own = own
        self._token = trio.lowlevel.current_trio_token()

    def is_own(self, address: str, viewer: str) -> bool:
        """Whether clients at an IP address know this broker under an address."""
        return address in self._own(viewer)

    def connect(self, address: str, viewer: str) -> socket.socket | None:
        """A socket to this broker for the viewer at an IP address; None for other addresses.

        Blocks; for any thread but the loop's. Raises: OSError.
        """
        if not self.is_own(address, viewer):
            return None
        near, far = socket_pair()
        try:
            peer = (viewer, far.getpeername()[1])
            trio.from_thread.run_sync(self._take_in, far, peer, trio_token=self._token)
        except BaseException as error:
            near.close()
            far.close()
            if isinstance(error, trio.RunFinishedError):
                raise ConnectionRefusedError("the broker is stopping") from None
            raise
        return near


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets of TCP: what serves connections asks for their addresses.

    Raises: OSError.
    """
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1)
        near = socket.create_connection(listener.getsockname())
        while True:
            far, address = listener.accept()
            if address == near.getsockname():
                return near, far
            # Somebody else of this host was quicker.
            far.close()


class InsideClient(Client):
    """A client whose connections to this broker stay inside the process."""

    def __init__(self, namesrv: str, sockets: InsideSockets, viewer: str, **options: Any) -> None:
        self._sockets = sockets
        self._viewer = viewer
        super().__init__(namesrv, **options)

    def _carry_out(self, effect: Effect) -> Command | None:
        if ENDS.get():
            trio.from_thread.check_cancelled()
        return super()._carry_out(effect)

    def _link(self, config: ClientConfig) -> Link:
        link = link_of(config.credentials, config.tls, config.namespace_v2, config.namespace)
        return Link(
            link.dress,
            link.tls,
            link.server_hostname,
            link.names,
            shortcut=lambda address: self._sockets.connect(address, self._viewer),
        )


class InsideConnection(Connection):
    """The connection of commands: all of them use one client, which stays open."""

    client: Client

    def __init__(self, client: Client) -> None:
        super().__init__(None)
        object.__setattr__(self, "client", client)

    def admin(self, **more: Any) -> AdminClient:
        """An administrator over the client."""
        return AdminClient(client=self.client)

    def producer(self, group: str = CLI_GROUP) -> Producer:
        """A producer over the client."""
        return Producer(client=self.client, group=group)


def ending(run: Callable[..., T], *arguments: Any) -> T:
    """Run what only reads, in a thread: once nobody waits for it, it ends in front of its next
    request, and its thread is free again. Raises: Cancelled then.
    """
    ENDS.set(True)
    return run(*arguments)


def options_of(name: str, secret: str) -> ClientOptions:
    """The options of the client of an account; of none without a name."""
    if not name:
        return {}
    return {"credentials": Credentials(name, secret)}
