"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: queue assignment by the broker.

Source: remoting §3.13, semantics §11.2 (QueryAssignmentProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.assignment.assignment import STRATEGIES, alone, shared
from aerobee.broker.assignment.request_modes import MODES, POP, PULL
from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.consumers.clients import BROADCASTING
from aerobee.broker.core.lists import encoded_table
from aerobee.broker.errors import NoPermission, Refusal, TopicNotExist
from aerobee.broker.topics.topic_processor import once_saved
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.pop import (
    AssignmentRequest,
    AssignmentResponse,
    MessageQueueAssignment,
    RequestModeRequest,
)
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.bodies.route import TopicRouteData
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from aerobee.broker.assignment.request_modes import RequestModeTable
    from aerobee.broker.consumers.clients import ClientTable
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.namesrv.registration import Registration
    from aerobee.broker.topics.topic_processor import TableFile
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Later, Outcome, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pop import (
        GetAllMessageRequestMode,
        QueryAssignment,
        SetMessageRequestMode,
    )

READ_BIT: Final = 4
QUEUES_MAX: Final = 32_768
"""The most queues of one topic, on all brokers, that are assigned here: 10 ms for one request."""

log = structlog.stdlib.get_logger(__name__)


class AssignmentProcessor:
    """Both codes."""

    def __init__(
        self,
        *,
        core: Core,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        registration: Registration,
        modes: RequestModeTable,
        saved: TableFile,
    ) -> None:
        self._config = core.config
        self._clock = core.clock
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._registration = registration
        self._modes = modes
        self._saved = saved

    def query(self, header: QueryAssignment, command: Command, connection: Caller) -> Outcome:
        """QUERY_ASSIGNMENT: no list at all where topic or group is unknown, or where no name server
        tells which brokers have the topic: the client keeps what it has. An embedded one tells.
        """
        request = AssignmentRequest.from_client(command.body)
        if self._registration.links:
            return self._query_later(request)
        return self._answer(request, TopicRouteData())

    async def _query_later(self, request: AssignmentRequest) -> Later:
        elsewhere = await self._registration.route_elsewhere(request.topic)
        if elsewhere is None:
            return Answer(body=AssignmentResponse().to_bytes())
        return self._answer(request, elsewhere)

    def _answer(self, request: AssignmentRequest, elsewhere: TopicRouteData) -> Answer:
        mode, share = self._mode(request.topic, request.consumer_group)
        assigned = self._assigned(request, mode, share, elsewhere)
        if assigned is None:
            return Answer(body=AssignmentResponse().to_bytes())
        assignments = [MessageQueueAssignment(queue, mode) for queue in assigned]
        return Answer(body=AssignmentResponse(assignments).to_bytes())

    def set_mode(
        self, header: SetMessageRequestMode, command: Command, connection: Caller
    ) -> Outcome:
        """SET_MESSAGE_REQUEST_MODE, answered when it is on disk; an unknown group is created where
        using one creates it.
        """
        wanted = RequestModeRequest.from_client(command.body)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise NoPermission("retry topic is not allowed to set mode")
        if self._topics.get(wanted.topic) is None:
            raise TopicNotExist(wanted.topic)
        if wanted.mode not in MODES:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"mode {wanted.mode[:40]!r} is neither PULL nor POP"
            )
        self._groups.require(wanted.consumer_group, self._clock.now_ms())
        before = self._modes.get(wanted.topic, wanted.consumer_group)
        self._modes.set(wanted)
        log.info(
            "request_mode.changed",
            topic=wanted.topic,
            group=wanted.consumer_group,
            mode=wanted.mode,
            share=wanted.pop_share_queue_num,
        )
        changes = change(f"{wanted.consumer_group}/{wanted.topic}", before, wanted)
        return once_saved(self._saved, "message request mode", ChangeAnswer(changes=changes))

    def all_modes(
        self, header: GetAllMessageRequestMode, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_MESSAGE_REQUEST_MODE: the current content of `messageRequestMode.json`."""
        body = yield from encoded_table(self._modes.modes)
        return Answer(body=b'{"messageRequestModeMap":' + body + b"}")

    def _mode(self, topic: str, group: str) -> tuple[str, int]:
        """The request mode of a group and topic, and how many members share a queue where it
        pops.
        """
        options = self._config.broker
        known = self._modes.get(topic, group)
        if known is not None:
            return known.mode, known.pop_share_queue_num
        if topic.startswith(RETRY_PREFIX):
            return PULL, 0
        return options.default_message_request_mode, options.default_pop_share_queue_num

    def _assigned(
        self, request: AssignmentRequest, mode: str, share: int, elsewhere: TopicRouteData
    ) -> list[MessageQueue] | None:
        """The assigned queues; None where the topic or the group is unknown."""
        allocate = STRATEGIES.get(request.strategy_name)
        if allocate is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"strategy {request.strategy_name[:40]!r} is none of {', '.join(STRATEGIES)}",
            )
        queues = self._queues(request.topic, elsewhere)
        if queues is None or request.message_model == BROADCASTING:
            return queues
        group = self._clients.group(request.consumer_group)
        if group is None:
            return None
        members = group.client_ids()
        if mode == POP:
            return shared(allocate, queues, members, request.client_id, share)
        return alone(allocate, queues, members, request.client_id)

    def _queues(self, topic: str, elsewhere: TopicRouteData) -> list[MessageQueue] | None:
        """All readable queues of a topic, sorted: ours, those of brokers registered here, and those
        that a name server elsewhere knows.
        """
        routes = self._registration.routes
        here = routes.route(topic) if routes is not None else None
        known = [*elsewhere.queue_datas, *(here.queue_datas if here is not None else ())]
        counts = {data.broker_name: data.read_queue_nums for data in known if data.perm & READ_BIT}
        config = self._topics.get(topic)
        if config is not None and config.perm & READ_BIT:
            counts[self._config.broker.broker_name] = config.read_queue_nums
        if not counts:
            return None
        if sum(counts.values()) > QUEUES_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} has more than {QUEUES_MAX} queues on all brokers together:"
                " its consumers must share them out themselves",
            )
        return [
            MessageQueue(broker_name=broker, queue_id=queue_id, topic=topic)
            for broker, count in sorted(counts.items())
            for queue_id in range(count)
        ]
