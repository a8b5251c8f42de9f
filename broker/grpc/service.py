"""The calls of the 5.x clients: who sends each, which one it is, and what serves it.

The order is that of the proxy: metadata, account, client id, then the request itself. Source: grpc
§1.2, §2.1 (GrpcMessagingApplication).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from google.protobuf.message import DecodeError

from aerobee.broker.errors import LimitReached
from aerobee.broker.grpc.caller import shown
from aerobee.broker.grpc.clients import Client, status_command
from aerobee.broker.grpc.rpc import Rpc, status_of
from aerobee.broker.grpc.translation.names import found, group_of, topic_of
from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.broker.grpc.translation.routes import (
    assignments_of,
    broker_of,
    check_endpoints,
    endpoints_of,
    queues_of,
)
from aerobee.broker.grpc.translation.settings import (
    check_kind,
    heartbeat_of,
    merged,
    timeout_of,
    with_topics_of,
)
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS, signer_of
from aerobee.broker.topics.topics import permitted
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.bulk import SHORT_BYTES_MAX, is_short
from aerobee.remoting.grpc.calls import Shape
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.fields import BULK, RPCS
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import LANGUAGE_CODES
from aerobee.remoting.wire.headers.client import Heartbeat, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.grpc.caller import GrpcCaller
    from aerobee.broker.grpc.clients import Clients
    from aerobee.broker.grpc.door import Door
    from aerobee.broker.grpc.fates import Fates
    from aerobee.broker.grpc.producing import Producing
    from aerobee.broker.grpc.pulling import Pulling
    from aerobee.broker.grpc.receiving import Receiving
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.grpc.calls import Call
    from aerobee.remoting.grpc.head import RequestHead
    from aerobee.remoting.server.grpc_serving import GrpcChannel
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.bodies.client import HeartbeatData
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

ID_CHARS_MAX: Final = 255
OTHER: Final = "OTHER"
BAD_SETTINGS: Final = "process client telemetryCommand failed. "

UNKNOWN: Final = (
    Code.UNRECOGNIZED_CLIENT_TYPE,
    "the client has sent no settings over Telemetry",
)

log = structlog.stdlib.get_logger(__name__)


class Method(NamedTuple):
    """How a call is served: by what, and the classes of its request and its answer."""

    serve: Callable[[Rpc, Any], None]
    request: Any
    answer: Any


class Parts:
    """The parts that serve the calls."""

    __slots__ = ("clients", "fates", "producing", "pulling", "receiving")

    def __init__(
        self,
        clients: Clients,
        producing: Producing,
        receiving: Receiving,
        pulling: Pulling,
        fates: Fates,
    ) -> None:
        self.clients = clients
        self.producing = producing
        self.receiving = receiving
        self.pulling = pulling
        self.fates = fates


class MessagingService:
    """The meaning of calls."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        consumers: ConsumerTables,
        door: Door,
        parts: Parts,
        address: str,
    ) -> None:
        """`address`: the published one of this port, for clients that ask for no other."""
        self._config = core.config
        self._clock = core.clock
        self._topics = topics
        self._groups = consumers.groups
        self._members = consumers.clients
        self._door = door
        self._clients = parts.clients
        pulling = parts.pulling
        self._streams: Mapping[str, Receiving | Pulling] = {
            "ReceiveMessage": parts.receiving,
            "PullMessage": pulling,
        }
        """The methods with several answers, which wait for room in their stream."""
        self._address = address
        producing, fates = parts.producing, parts.fates
        served: Mapping[str, Callable[[Rpc, Any], None]] = {
            "QueryRoute": self._query_route,
            "QueryAssignment": self._query_assignment,
            "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._terminated,
            "SendMessage": producing.send,
            "EndTransaction": producing.end,
            "RecallMessage": producing.recall,
            "ReceiveMessage": parts.receiving.receive,
            "PullMessage": pulling.pull,
            "UpdateOffset": pulling.update,
            "GetOffset": pulling.stored,
            "QueryOffset": pulling.query,
            "AckMessage": fates.acknowledge,
            "ChangeInvisibleDuration": fates.change,
            "ForwardMessageToDeadLetterQueue": fates.forward,
        }
        self._served = {
            name: Method(
                serve, getattr(messages, RPCS[name].request), getattr(messages, RPCS[name].answer)
            )
            for name, serve in served.items()
        }

    # ── Calls ──

    def opened(self, channel: GrpcChannel, call: Call) -> None:
        """A Telemetry stream has begun; its settings have to come next."""
        channel.context.shared.heard(channel)
        caller = Rpc(self._door, channel, NOBODY_SIGNS, call, messages.TelemetryCommand)
        try:
            self._introduce(caller, call.head)
        except RpcRefused as refused:
            self._end_stream(caller, refused)
        else:
            call.owner = Client(self._clients, caller, call)

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        """A request has come, or the next command of a client."""
        if call.method.shape is Shape.BOTH_STREAM:
            client = call.owner
            if isinstance(client, Client):
                self._command(client, message)
            return
        channel.context.shared.heard(channel)
        served = self._served.get(call.method.name)
        if served is None:
            path = call.head.method
            call.finish(StatusCode.UNIMPLEMENTED, f"Method {path} is unimplemented")
            return
        rpc = Rpc(self._door, channel, NOBODY_SIGNS, call, served.answer)
        call.owner = rpc
        try:
            request = parsed(call, served.request, message)
            self._introduce(rpc, call.head)
            served.serve(rpc, request)
        except (DecodeError, ValueError) as error:
            kind = RPCS[call.method.name].request
            text = f"the request is no {kind}, or has a time out of range: {error}"
            call.finish(StatusCode.INVALID_ARGUMENT, text)
        except RpcRefused as refused:
            if refused.topic:
                self._refuse_known(rpc, refused)
            else:
                self._refuse(rpc, refused)

    def half_closed(self, call: Call) -> None:
        """A client sends no more commands: its stream ends."""
        self.over(call)
        call.finish()

    def room_again(self, call: Call) -> None:
        """There is room for more messages."""
        if isinstance(call.owner, Rpc) and call.owner.left is not None:
            self._streams[call.method.name].go_on(call.owner)

    def over(self, call: Call) -> None:
        """The client has cancelled a call, or is gone."""
        owner, call.owner = call.owner, None
        if isinstance(owner, Rpc):
            owner.close("the call is over")
            if (streams := self._streams.get(call.method.name)) is not None:
                streams.over(owner)
        elif isinstance(owner, Client):
            self._clients.lost(owner)

    def _introduce(self, caller: GrpcCaller, head: RequestHead) -> None:
        """Note who sends a call. Raises: RpcRefused."""
        caller.signer = signer_of(head)
        if caller.channel.accounts:
            caller.accounts = shown(caller.channel, caller.signer)
        caller.client_id = head.text(b"x-mq-client-id").strip()
        language = head.text(b"x-mq-language")
        caller.language = language if language in LANGUAGE_CODES else OTHER
        if not caller.client_id:
            raise RpcRefused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(caller.client_id) > ID_CHARS_MAX:
            raise RpcRefused(
                Code.BAD_REQUEST,
                f"client id of {len(caller.client_id)} characters, {ID_CHARS_MAX} are taken",
            )

    def _refuse(self, rpc: Rpc, refused: RpcRefused) -> None:
        streams = self._streams.get(rpc.call.method.name)
        if streams is None:
            rpc.refused(refused)
        else:
            streams.end(rpc, refused.code, refused.text)

    def _refuse_known(self, rpc: Rpc, refused: RpcRefused) -> None:
        """Tell of a topic to whom may know it. Others hear what they are told of any topic."""

        def told(answer: Answer) -> None:
            self._refuse(rpc, RpcRefused(*outcome(answer)) if answer.code else refused)

        rpc.ask(GetRouteInfo(topic=refused.topic), told)

    # ── Telemetry ──

    def _command(self, client: Client, message: bytes) -> None:
        try:
            command = parsed(client.stream, messages.TelemetryCommand, message)
        except (DecodeError, ValueError) as error:
            text = f"the command is no TelemetryCommand: {error}"
            client.stream.finish(StatusCode.INTERNAL, text)
            self._clients.lost(client)
            return
        kind = command.WhichOneof("command")
        if kind == "settings":
            self._settings(client, command.settings)
        elif kind in ("thread_stack_trace", "verify_message_result"):
            client.questions.answer(command)

    def _settings(self, client: Client, settings: Any) -> None:
        before = client.data
        try:
            check_kind(settings)
            timeout_ms = timeout_of(settings)
            data = heartbeat_of(settings, client.client_id, self._clock.now_ms())
            client.data = with_topics_of(data, before)
        except RpcRefused as refused:
            client.data = before
            self._end_client(client, refused)
            return
        group = None
        if settings.HasField("subscription"):
            group = self._groups.get(settings.subscription.group.name)
        body_bytes_max = self._config.store.max_message_size_bytes
        answer = merged(settings, group, body_bytes_max=body_bytes_max)

        def taken() -> None:
            try:
                self._clients.entered(client)
            except RpcRefused as refused:
                not_taken(refused)
                return
            client.request_timeout_ms = timeout_ms
            self._clients.moved(client, before)
            client.stream.stay()
            command = messages.TelemetryCommand(status=status_of(Code.OK), settings=answer)
            client.tell(command)

        def not_taken(error: RpcRefused) -> None:
            client.data = before
            self._end_stream(client, error)

        try:
            self._check_room(client, client.data)
        except LimitReached as full:
            not_taken(RpcRefused(*outcome(Answer(full.code, None, full.remark))))
        else:
            client.renew(taken, not_taken)

    def _check_room(self, client: Client, data: HeartbeatData) -> None:
        """Check that all clients of a connection together are in no more groups than one of
        remoting may be. Raises: LimitReached.
        """
        numbers = [beside.number for beside in self._clients.beside[client.channel.id]]
        consumers = [entry.group_name for entry in data.consumer_data_set]
        producers = [entry.group_name for entry in data.producer_data_set]
        self._members.check_memberships(client.number, numbers, consumers, producers)

    def _end_client(self, client: Client, refused: RpcRefused) -> None:
        """End the stream of a client whose settings cannot be taken."""
        code = StatusCode.INVALID_ARGUMENT
        if refused.code is Code.UNRECOGNIZED_CLIENT_TYPE:
            code = StatusCode.INTERNAL
        client.stream.finish(code, BAD_SETTINGS + refused.text)
        client.wrote()
        self._clients.lost(client)

    def _end_stream(self, caller: Client | Rpc, refused: RpcRefused) -> None:
        """Tell a client that it is not served: by a command, as clients expect."""
        stream = caller.stream if isinstance(caller, Client) else caller.call
        stream.send(status_command(refused.code, refused.text).SerializeToString())
        stream.finish()
        caller.wrote()
        if isinstance(caller, Client):
            # Also where the stream was gone already: the gate may have held the refusal back.
            self._clients.lost(caller)

    # ── Unary calls about clients and routes ──

    def _heartbeat(self, rpc: Rpc, request: Any) -> None:
        data = self._claimed(rpc)
        if data.consumer_data_set and request.HasField("group"):
            group_of(request.group)

        def allowed(client: Client) -> None:
            self._clients.heard(client)
            client.renew(rpc.done, rpc.refused, own=True)

        self._for_client(rpc, Heartbeat(), allowed, body=data.to_bytes())

    def _terminated(self, rpc: Rpc, request: Any) -> None:
        groups = [entry.group_name for entry in self._claimed(rpc).consumer_data_set]

        def allowed(client: Client) -> None:
            self._clients.leave(client)
            rpc.done()

        header = UnregisterClient(rpc.client_id, None, groups[0] if groups else None)
        self._for_client(rpc, header, allowed)

    def _claimed(self, rpc: Rpc) -> HeartbeatData:
        """The groups of the client that a call says it comes from. Raises: RpcRefused."""
        client = self._clients.claimed(rpc)
        if client is None or client.data is None:
            raise RpcRefused(*UNKNOWN)
        return client.data

    def _for_client(
        self, rpc: Rpc, header: Header, then: Callable[[Client], None], *, body: bytes = b""
    ) -> None:
        """Act for the client of a call, which may send this request."""

        def allowed(_: Answer) -> None:
            client = self._clients.get(rpc)
            if client is None:
                rpc.refused(RpcRefused(*UNKNOWN))
            else:
                then(client)

        rpc.request(header, allowed, body=body)

    def _query_route(self, rpc: Rpc, request: Any) -> None:
        name = topic_of(request.topic)
        check_endpoints(request.endpoints)

        def known(_: Answer) -> None:
            topic = self._told(name)
            broker = self._broker(request)
            rpc.done(message_queues=queues_of(topic, request.topic, broker))

        self._about_topic(rpc, name, known)

    def _query_assignment(self, rpc: Rpc, request: Any) -> None:
        name, group = topic_of(request.topic), group_of(request.group)
        check_endpoints(request.endpoints)

        def known(_: Answer) -> None:
            topic = self._told(name)
            config = self._groups.get(group)
            fifo = config is not None and config.consume_message_orderly
            broker = self._broker(request)
            rpc.done(assignments=assignments_of(topic, request.topic, broker, fifo=fifo))

        self._about_topic(rpc, name, known)

    def _told(self, name: str) -> TopicConfig:
        """A topic, of which the broker may permit less. Raises: RpcRefused."""
        topic = found(name, self._topics.get(name))
        return permitted(topic, self._config.broker.broker_permission)

    def _about_topic(self, rpc: Rpc, topic: str, then: Callable[[Answer], None]) -> None:
        """Answer a question about a topic, to whom may ask it."""

        def allowed(answer: Answer) -> None:
            try:
                then(answer)
            except RpcRefused as refused:
                rpc.refused(refused)

        rpc.request(GetRouteInfo(topic=topic), allowed)

    def routes(self, routes: Sequence[Route]) -> list[Route]:
        """The routes of the broker. A call asks some of them only whether its sender may."""
        others = [self._of_client(route) for route in routes if route.header is not GetRouteInfo]
        # A broker with a name server answers this one itself; here the topic's own table counts.
        return [*others, Route(GetRouteInfo, allowed, "client_manager")]

    def _of_client(self, route: Route) -> Route:
        """A route whose requests are about a client: they are its own, and not those of a call."""
        if route.header not in (Heartbeat, UnregisterClient):
            return route

        def handler(header: Header, command: Command, caller: GrpcCaller) -> Outcome:
            if isinstance(caller, Client):
                return route.handler(header, command, caller)
            return allowed(header, command, caller)

        return route._replace(handler=handler)

    def _broker(self, request: Any) -> Any:
        """This broker at the endpoints that the client asked for."""
        wanted = request.endpoints
        endpoints = wanted if wanted.addresses else endpoints_of(self._address)
        return broker_of(self._config.broker.broker_name, endpoints)


def parsed(call: Call, kind: Any, message: bytes) -> Any:
    """A message of a call. Raises: DecodeError, ValueError."""
    if not is_short(message, BULK.get(call.method.name, ())):
        text = f"it has too many fields, or {SHORT_BYTES_MAX} bytes beside what may be long"
        raise ValueError(text)
    return kind.FromString(message)


def allowed(header: Header, command: Command, caller: GrpcCaller) -> Answer:
    """Answer a request that only asks the gate."""
    return Answer()
