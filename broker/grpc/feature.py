"""gRPC: the RocketMQ 5.x clients, at a port of their own. Without `grpcPort` nothing of it is
loaded.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from importlib.metadata import requires
from typing import TYPE_CHECKING, Final

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.core.feature import Feature
from aerobee.remoting.server.reactor import Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.grpc.assembly import Assembly
    from aerobee.broker.grpc.translation.kept_handles import Holder
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.routes import Route
    from aerobee.remoting.wire.headers.pop import ChangeInvisibleTime


NEEDED: Final = frozenset({"ngh2", "google"})
"""The packages of the extra, by the first name of their modules."""
SLAVE: Final = "this broker is a slave: its master serves clients"
EXTRA: Final = re.compile(r"(.+?)\s*;\s*extra\s*==\s*['\"]grpc['\"]")


class GrpcFeature(Feature):
    """The port, its clients, and the messages that they work on."""

    def __init__(
        self, core: Core, topics: TopicTable, consumers: ConsumerTables, orders: PopOrderTable
    ) -> None:
        """Load what the port needs. `orders`: of the pops. Raises: ConfigurationError."""
        try:
            assembly = import_module("aerobee.broker.grpc.assembly")
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in NEEDED:
                raise
            raise ConfigurationError([missing(str(error))]) from error
        port = core.config.remoting.grpc_port
        address = with_port(core.address.rpartition(":")[0], port)
        self._core = core
        self._parts: Assembly = assembly.Assembly(core, topics, consumers, orders, address)
        self.services = self._parts.services
        if core.role.is_slave:
            self._parts.serving.turn_away(SLAVE)

    @staticmethod
    def wanted(core: Core) -> bool:
        """Whether the port is to be opened."""
        return core.config.remoting.grpc_port > 0

    def listener(self, sock: socket.socket, routes: Sequence[Route]) -> Listener:
        """The listener at the socket of the port. `routes`: of the broker."""
        parts = self._parts
        return Listener("grpc", sock, parts.serving, parts.begin, parts.service.routes(routes))

    def guard(self, may_hide: Callable[[Holder, ChangeInvisibleTime], bool]) -> None:
        """Hide the messages that a client works on only for as long as its account may."""
        self._parts.fates.may_hide = may_hide

    def scan(self) -> Iterator[None]:
        """Forget the clients that have not come back."""
        yield from self._parts.clients.expire()

    def settings_changed(self) -> Iterator[None]:
        """Take longer or only shorter bodies."""
        self._parts.serving.limit_bodies(self._core.config.store.max_message_size_bytes)
        yield from ()

    def be_master(self) -> None:
        """Serve clients."""
        self._parts.serving.welcome()

    def copy_begins(self) -> None:
        """Send clients to the next master. It has the check points of what they work on."""
        self._parts.serving.turn_away(SLAVE)
        self._parts.fates.kept.forget_all()

    def topic_deleted(self, topic: str) -> None:
        """Forget which messages of the topic somebody works on."""
        self._parts.fates.kept.delete_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget which messages the group works on."""
        self._parts.fates.kept.delete_group(group)

    async def leave(self) -> None:
        """End the streams of the clients, who come back later or go elsewhere."""
        self._parts.serving.leave("the broker is stopping")


def missing(why: str) -> str:
    """The trouble where the extra is not installed, or is too old, and what helps."""
    matches = (EXTRA.fullmatch(text) for text in requires("aerobee") or ())
    needed = [match[1] for match in matches if match is not None]
    command = shlex.join([sys.executable, "-m", "pip", "install", *needed])
    return (
        f"grpcPort is set, and the extra grpc is not installed ({why}): {command},"
        " or set grpcPort to 0"
    )
