"""The parts of the gRPC port, joined. Importing this loads protobuf and the HTTP/2 engine."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from aerobee.broker.grpc.caller import GrpcCaller
from aerobee.broker.grpc.clients import Clients
from aerobee.broker.grpc.door import Door
from aerobee.broker.grpc.fates import Fates, client_of
from aerobee.broker.grpc.producing import Producing
from aerobee.broker.grpc.pulling import Pulling
from aerobee.broker.grpc.receiving import Receiving
from aerobee.broker.grpc.service import MessagingService, Parts
from aerobee.broker.grpc.services import METHODS as OTHER_METHODS
from aerobee.broker.grpc.services import Services
from aerobee.broker.grpc.translation.running_info import running_info
from aerobee.remoting.server.addresses import packed_host
from aerobee.remoting.server.grpc_serving import METHODS, GrpcServing

if TYPE_CHECKING:
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Service
    from aerobee.broker.grpc.clients import Client
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.run import Run
    from aerobee.remoting.server.shared import SharedState
    from aerobee.remoting.server.worker import Worker
    from aerobee.remoting.wire.bodies.client import HeartbeatData
    from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo


class Assembly:
    """Service, serving, and what runs in the background."""

    def __init__(
        self,
        core: Core,
        topics: TopicTable,
        consumers: ConsumerTables,
        orders: PopOrderTable,
        address: str,
    ) -> None:
        """`address`: the published one of the port."""
        rounds = core.rounds
        self.door = Door(rounds.held, rounds.flush)
        self.clients = Clients(self._closed, self._gone, self._known)
        self._topics, self._broker_name = topics, core.config.broker.broker_name
        self._when_closed = rounds.when_closed
        self._ours = GrpcCaller(self.door, OwnChannel(rounds.reactor.shared))
        self.fates = Fates(core, self._own, self.clients.by_id.__contains__, orders)
        producing = Producing(core, topics, self.clients)
        receiving = Receiving(
            core, topics=topics, consumers=consumers, clients=self.clients, fates=self.fates
        )
        self.service = MessagingService(
            core,
            topics=topics,
            consumers=consumers,
            door=self.door,
            parts=Parts(self.clients, producing, receiving, Pulling(topics), self.fates),
            address=address,
        )
        limit = core.config.store.max_message_size_bytes
        services = Services(self.service)
        methods = {**METHODS, **OTHER_METHODS}
        self.serving = GrpcServing(services, body_bytes_max=limit, methods=methods)
        self.services: tuple[Service, ...] = (self.door, self.fates, self.serving)

    def begin(self, worker: Worker) -> None:
        """Serve requests by this worker."""
        self.door.worker = worker

    def _own(self) -> GrpcCaller | None:
        return self._ours if hasattr(self.door, "worker") else None

    def _known(self, client: Client, data: HeartbeatData) -> ConsumerRunningInfo:
        held = self.fates.kept.of_client(client_of(client))
        return running_info(data, self._queues, self._broker_name, held)

    def _queues(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else config.read_queue_nums

    def _gone(self, client: Client) -> None:
        self.fates.client_gone(client)

    def _closed(self, client: Client) -> None:
        for closed in self._when_closed:
            closed(client)  # type: ignore[arg-type]  # it stands for its connection


class OwnChannel:
    """The channel of our own requests: there is none. It only has what handlers look at."""

    def __init__(self, shared: SharedState) -> None:
        self.id = 0
        self.host = packed_host(("127.0.0.1", 0))
        self.address = self.local_address = "127.0.0.1:0"
        self.listener = "grpc"
        self.accounts: frozenset[str] = frozenset()
        self.held = self.requests = 0
        self.paused = self.stalled = self.closed = False
        self.context = OwnContext(shared)

    def welcome(self) -> None:
        """Stay: there is no connection."""

    def admit(self) -> None:
        """Stay as before: our requests need no account."""

    def hold(self) -> None:
        """There is nothing behind our requests."""

    def touch(self) -> None:
        """Have answers sent: there are none."""

    def write(self) -> None:
        """Send them."""


class OwnContext:
    """Its time, and what all connections share."""

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared
        self.stats = shared.stats
        self.turn_ends = 0.0
        self.run: Run | None = None

    @property
    def now(self) -> float:
        """The time now: no turn of a selector says it."""
        return monotonic()

    def serve_run(self) -> None:
        """Serve the requests that wait to be served together: none does here."""
