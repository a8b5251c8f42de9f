"""Registers this broker with name servers: the embedded one directly, others by requests.

Each other name server has a task. Once connected, it registers the whole topic table, then changed
topics as they change, and the whole table again every 30 s, which is the heartbeat. A name server
that cannot be reached costs a log line and an attempt every 3 s; the broker keeps serving.
Source: nameserver §2, §7 (BrokerOuterAPI).
"""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import msgspec
import structlog
import trio

from aerobee.broker.errors import first_reason
from aerobee.broker.namesrv.registrations import MASTER_ID, RegistrationAnswer
from aerobee.broker.saved.documents import object_pieces
from aerobee.broker.topics.topics import PERM_WRITE, READ_WRITE, permitted
from aerobee.remoting.errors import BodyError, HeaderError, RemotingError
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.bodies.route import QueueData, TopicRouteData
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.broker.namesrv.route_table import RouteTable
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.data_version import DataVersion
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from aerobee.store.clock import Clock

RETRY_S: Final = 3.0
"""The pause after a failed attempt."""
SEARCH_S: Final = 5.0
"""The period of the registration of a slave while no master is known."""
LEAVE_S: Final = 1.0
"""The timeout for unregistering."""
NO_TOPICS: Final = b'"topicConfigTable":{}'
"""Where the topics stand in the text of a registration."""
TOPICS_AT_ONCE: Final = 200
"""Topics that are registered again in one step of the loop."""

ROUTE_S: Final = 2.0
"""How long a name server may take to tell of a topic: a client waits for 3 s."""

log = structlog.stdlib.get_logger(__name__)


class NameServer(Protocol):
    """A connection to a name server."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of this broker in registrations. Addresses are `host:port`."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    ha_address: str


class Registration:
    """The service that keeps this broker registered. `topics_changed` may be called from anywhere
    in the loop.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        settings: BrokerOptions,
        topics: TopicTable,
        clock: Clock,
        routes: RouteTable | None = None,
        name_servers: Sequence[str] = (),
        connect: Callable[[str], AbstractAsyncContextManager[NameServer]],
    ) -> None:
        self.identity = identity
        self.topics = topics
        self.clock = clock
        self.routes = routes
        self.connect = connect
        self.period_s = settings.register_name_server_period_ms / 1000
        self.settings = settings
        self.permission = settings.broker_permission
        self.links = [Link(self, address) for address in name_servers]
        self.leaving = False
        self.lame = False
        self.fenced: Callable[[], bool] = lambda: False
        """Whether this broker may be the master no more, though it has not noticed: then it does
        not register as one."""
        self.epoch: Callable[[], int] = lambda: 0
        """In a group, the epoch of the latest master that this broker knows."""

    @property
    def is_slave(self) -> bool:
        """Whether this broker registers as a slave."""
        return self.identity.broker_id != MASTER_ID

    @property
    def is_fenced(self) -> bool:
        """Whether it does not register, because it may be the master no more."""
        return not self.is_slave and self.fenced()

    @property
    def version(self) -> DataVersion:
        """The version of what is registered. With the epoch a name server knows a registration of
        an earlier master, which came late, and does not take it in the place of the present one.
        With another permission it is another one: a name server that has missed a restart still
        has the topics as they were registered before.
        """
        version, epoch = self.topics.version, self.epoch()
        lacks = READ_WRITE & ~self.permission
        if not (epoch or lacks):
            return version
        state, shown_ms = epoch or version.state_version, version.timestamp + lacks
        return msgspec.structs.replace(version, state_version=state, timestamp=shown_ms)

    @property
    def master(self) -> RegistrationAnswer:
        """The master of a slave as a name server has told it last; without addresses: none is."""
        masters = [link.master for link in self.links]
        if self.routes is not None:
            masters.append(self.routes.master_of_own(self.identity.cluster))
        return next((answer for answer in masters if answer.ha_address), RegistrationAnswer())

    def become_master(self) -> None:
        """Register as the master of the group, at once and everywhere."""
        self._register_as(MASTER_ID)

    def become_slave(self, broker_id: int) -> None:
        """Register as a slave of this number, at once and everywhere."""
        for link in self.links:
            link.master = RegistrationAnswer()
        self._register_as(broker_id)

    def _register_as(self, broker_id: int) -> None:
        if self.routes is not None and self.routes.own is not None:
            self.routes.leave_own()
        self.identity = replace(self.identity, broker_id=broker_id)
        self.register_own()
        for link in self.links:
            link.anew = True
            link.wake.set()

    def register_own(self) -> None:
        """Register this broker with the embedded name server."""
        if self.routes is not None:
            self.routes.register_own(
                cluster=self.identity.cluster,
                broker=self.identity.broker,
                broker_id=self.identity.broker_id,
                address=self.identity.address,
                ha_address=self.identity.ha_address,
                topics=map(self.visible, self.topics.configs.values()),
            )

    def visible(self, config: TopicConfig) -> TopicConfig:
        """A topic as registered: permission bits that the broker lacks are cleared."""
        return permitted(config, self.permission)

    def settings_changed(self) -> Iterator[None]:
        """Register all topics again: with a new brokerPermission their permissions change."""
        permission, self.permission = self.permission, self.settings.broker_permission
        if self.lame:
            self.permission &= ~PERM_WRITE
        if permission == self.permission:
            return
        self.topics.touch(self.clock.now_ms())
        names = list(self.topics.configs)
        yield from self._tell_own_in_steps(names)
        self._tell_others(names)

    def wipe_write_permission(self) -> Iterator[None]:
        """Register all topics again without the permission to write: producers leave."""
        self.lame = True
        return self.settings_changed()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Register topics that are new, changed or deleted, at once: clients may ask for them."""
        changed = set(names)
        self._tell_own(changed)
        self._tell_others(changed)

    def _tell_own_in_steps(self, names: Sequence[str]) -> Iterator[None]:
        for at in range(0, len(names), TOPICS_AT_ONCE):
            self._tell_own(names[at : at + TOPICS_AT_ONCE])
            yield

    def _tell_own(self, changed: Iterable[str]) -> None:
        if self.routes is None or self.routes.own is None:
            return
        for topic in changed:
            config = self.topics.get(topic)
            if config is None:
                self.routes.delete_own(topic)
            else:
                self.routes.update_own((self.visible(config),))

    def _tell_others(self, changed: Iterable[str]) -> None:
        if self.is_slave:
            return  # its topics are its master's
        for link in self.links:
            if link.server is not None:
                link.changed.update(changed)
                link.wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the broker registered with all name servers until cancelled."""
        async with trio.open_nursery() as nursery:
            for link in self.links:
                nursery.start_soon(link.run)
            task_status.started()
            while True:
                await trio.sleep(self.period_s)
                await in_slices(self.register_deleted())

    def register_deleted(self) -> Iterator[None]:
        """Register with the embedded name server what this broker has of the topics whose routes
        were deleted there. Tools delete a topic at the broker first: one that a send has made anew
        in between would be found by nobody.
        """
        if self.routes is not None:
            deleted, self.routes.own_deleted = self.routes.own_deleted, set()
            yield from self._tell_own_in_steps(list(deleted))

    async def route_elsewhere(self, topic: str) -> TopicRouteData | None:
        """The route of a topic, as the first name server elsewhere that answers knows it. It is
        empty where there are none; None where there are some and none answers, unless one is
        embedded here: it knows as much as they do.
        """
        header = headers.GetRouteInfo(topic=topic, accept_standard_json_only=True)
        for link in self.links:
            if link.server is None:
                continue
            with suppress(RemotingError, OSError):
                answer = await link.server.call(header.code, header, b"", ROUTE_S)
                if answer.code == ResponseCode.SUCCESS:
                    return TopicRouteData.from_bytes(answer.body)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return TopicRouteData()
        return None if self.links and self.routes is None else TopicRouteData()

    async def leave(self) -> None:
        """Unregister from every name server, and stop registering."""
        self.leaving = True
        if self.routes is not None:
            self.routes.leave_own()
        async with trio.open_nursery() as nursery:
            for link in self.links:
                nursery.start_soon(link.leave)


class Link:
    """The registration with one other name server.

    Invariant: `changed` holds the changed topics that were not sent to it since its last complete
    registration, and nothing without a connection: each begins with such a registration.
    """

    def __init__(self, registrar: Registration, address: str) -> None:
        self.registrar = registrar
        self.address = address
        self.changed: set[str] = set()
        self.wake = trio.Event()
        self.anew = False
        """Whether the whole table is to be sent at once."""
        self.server: NameServer | None = None
        self.registered = False
        """Whether it has the whole table over this connection."""
        self.up: bool | None = None
        self.master = RegistrationAnswer()
        """The master as this name server knows it, for a slave."""

    async def run(self) -> NoReturn:
        """Connect, keep registered, and connect again after a failure."""
        while True:
            try:
                async with self.registrar.connect(self.address) as self.server:
                    await self.stay_registered(self.server)
            # The nursery of a connection raises its errors in a group.
            except* (RemotingError, OSError) as errors:
                self.note(False, first_reason(errors))
            finally:
                self.server = None
                self.changed = set()
            await trio.sleep(RETRY_S)

    async def stay_registered(self, server: NameServer) -> NoReturn:
        """Register, then send changes at once and the whole table periodically.

        After a refusal the connection stays: with its end a name server forgets this broker.
        """
        next_whole, self.registered = -math.inf, False
        while True:
            # Changes from here on are sent next time, even if this request fails.
            self.wake = trio.Event()
            changed, self.changed = self.changed, set()
            if self.registrar.leaving:
                await trio.sleep_forever()
            began = trio.current_time()
            try:
                if self.anew or began >= next_whole:
                    self.anew = False
                    await self.register(server, None)
                    next_whole = began + self.period_s
                    self.note(True, None)
                else:
                    await self.register(server, changed)
            except RegistrationRejected as refused:
                self.note(False, str(refused))
                self.anew = True
                await trio.sleep(RETRY_S)
                continue
            with trio.move_on_at(next_whole):
                await self.wake.wait()

    @property
    def period_s(self) -> float:
        """The period of the registration."""
        period_s = self.registrar.period_s
        searches = self.registrar.is_slave and not self.master.ha_address
        return min(period_s, SEARCH_S) if searches else period_s

    async def register(self, server: NameServer, changed: Iterable[str] | None) -> None:
        """Register the whole table, or some topics. Raises: Rejected, RemotingError."""
        table = self.registrar.topics.configs
        if self.registrar.is_fenced:
            return
        if changed is None:
            if not await self.wants_all(server):
                return
            names = list(table)
        else:
            names = [name for name in changed if name in table]
            if not names:
                return
        if changed is not None and self.registrar.settings.enable_single_topic_register:
            await self.send_one_by_one(server, names)
        else:
            await self.send(server, names)
        self.registered = self.registered or changed is None

    async def send_one_by_one(self, server: NameServer, names: Sequence[str]) -> None:
        """Send REGISTER_TOPIC_IN_NAMESRV for each topic, or the whole table when they are many.

        A name server with deleteTopicWithBrokerRegistration takes every REGISTER_BROKER for the
        whole table, and would delete the routes of all other topics. Raises: Rejected,
        RemotingError.
        """
        if len(names) > TOPICS_AT_ONCE:
            await self.register(server, None)
            return
        for name in names:
            topic = self.registrar.topics.get(name)
            if topic is None:
                continue  # deleted while those before it were sent: its route would stay for good
            config = self.registrar.visible(topic)
            queues = QueueData(
                broker_name=self.registrar.identity.broker,
                perm=config.perm,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                topic_sys_flag=config.topic_sys_flag,
            )
            body = TopicRouteData(queue_datas=[queues]).to_bytes()
            header = headers.RegisterTopicInNamesrv(topic=name)
            await self.call(server, RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)

    def body(self, names: Iterable[str]) -> Iterator[bytes]:
        """The text of a registration of these topics, in pieces: of 20,000 it takes tens of ms.

        The version is that of the begin: what changes meanwhile is registered again.
        """
        topics, visible = self.registrar.topics, self.registrar.visible
        empty = RegisterBrokerBody.of({}, self.registrar.version).to_bytes()
        before, behind = empty.split(NO_TOPICS)
        yield before + NO_TOPICS[:-2]
        yield from object_pieces(
            (name, visible(config)) for name in names if (config := topics.get(name)) is not None
        )
        yield behind

    async def send(self, server: NameServer, names: Iterable[str]) -> None:
        """Send REGISTER_BROKER with these topics. Raises: Rejected, RemotingError."""
        body = b"".join(await in_slices(self.body(names)))
        if self.registrar.is_fenced or self.registrar.leaving:
            return
        identity = self.registrar.identity
        header = headers.RegisterBroker(
            broker_name=identity.broker,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        answer = await self.call(server, RequestCode.REGISTER_BROKER, header, body)
        with suppress(HeaderError):
            response = answer.header(headers.RegisterBrokerResponse)
            self.master = RegistrationAnswer(response.ha_server_addr, response.master_addr)
        if answer.body:
            await in_slices(self.take_order(bytes(answer.body)))

    def take_order(self, body: bytes) -> Iterator[None]:
        """Mark the topics that are ordered according to the name server's response, in steps."""
        with suppress(BodyError):
            for ordered in KVTable.keys(body):
                self.registrar.topics.mark_ordered(ordered, self.registrar.clock.now_ms())
                yield

    async def wants_all(self, server: NameServer) -> bool:
        """Whether the whole table is to be sent; of a slave always, for the answer. Over a new
        connection too: the end of the one before, noticed late, would take the broker away.

        Raises: RemotingError.
        """
        always = self.registrar.is_slave or self.registrar.settings.force_register
        return always or not self.registered or await self.is_outdated(server)

    async def is_outdated(self, server: NameServer) -> bool:
        """Ask with QUERY_DATA_VERSION whether the registration is stale. Raises: RemotingError."""
        identity = self.registrar.identity
        header = headers.QueryDataVersion(
            broker_name=identity.broker,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            broker_id=identity.broker_id,
        )
        version = msgspec.json.encode(self.registrar.version)
        answer = await self.call(server, RequestCode.QUERY_DATA_VERSION, header, version)
        return answer.header(headers.QueryDataVersionResponse).changed

    async def call(self, server: NameServer, code: int, header: Header, body: bytes) -> Command:
        """Send a request that must succeed. Raises: Rejected, RemotingError."""
        timeout_s = self.registrar.settings.register_broker_timeout_ms / 1000
        answer = await server.call(code, header, body, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RegistrationRejected(f"answer {answer.code}: {answer.remark}")
        return answer

    async def leave(self) -> None:
        """Send UNREGISTER_BROKER, if the name server can be reached."""
        if self.server is None:
            return
        identity = self.registrar.identity
        header = headers.UnregisterBroker(
            broker_name=identity.broker,
            broker_addr=identity.address,
            cluster_name=identity.cluster,
            broker_id=identity.broker_id,
        )
        try:
            await self.server.call(RequestCode.UNREGISTER_BROKER, header, b"", LEAVE_S)
        except (RemotingError, OSError) as error:
            log.warning("namesrv.leave_failed", address=self.address, reason=str(error))
        else:
            log.info("namesrv.left", address=self.address)

    def note(self, up: bool, reason: str | None) -> None:
        """Log whether the broker is registered, when that changes."""
        if up is not self.up:
            self.up = up
            if up:
                log.info("namesrv.registered", address=self.address)
            else:
                log.warning("namesrv.unreachable", address=self.address, reason=reason)


class RegistrationRejected(Exception):
    """The name server answered with an error."""
