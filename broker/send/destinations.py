"""Topic and queue of a send: the checks that all ways of sending share, in the order clients know.

Source: semantics §6 (AbstractSendMessageProcessor.msgCheck).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.errors import NoPermission, Refusal
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.clock import Clock

WRITE_BIT: Final = 2
GROUP_MARK: Final = "%"
"""The first character of topics that belong to a group."""
INVALID_PARAMETER: Final = int(ResponseCode.INVALID_PARAMETER)
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)

log = structlog.stdlib.get_logger(__name__)


class Destinations:
    """Topic and queue of a send, checked. `random_queue(n)` gives one of 0…n−1."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        topics: TopicTable,
        groups: GroupTable,
        clock: Clock,
        random_queue: Callable[[int], int],
    ) -> None:
        self.options = options
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._random_queue = random_queue

    def place(self, header: SendMessage | SendMessageV2) -> tuple[TopicConfig, int, bool]:
        """Checks 2 to 8, in this order: time gate, ordered topic, name, sendable, existence, the
        queue, the group of a retry topic. Raises: Refusal. Hot.

        The topic, the queue, and whether the topic is an ordinary one: it was there before this
        send, belongs to no group, and has no attributes.
        """
        name, queue_id, options = header.topic, header.queue_id, self.options
        gate_ms = options.start_accept_send_request_time_stamp_ms
        if gate_ms and self._clock.now_ms() < gate_ms:
            raise Refusal(SYSTEM_ERROR, f"broker unable to service, until {gate_ms}")
        if not options.broker_permission & WRITE_BIT:
            self._refuse_ordered(name)
        topic = self._topics.sendable(name)
        ordinary = topic is not None and not topic.attributes
        if topic is None:
            topic = self._made(header)
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._queue_id(queue_id, topic)
        if name[0] == GROUP_MARK:
            ordinary = False
            if name.startswith(RETRY_PREFIX):
                self._groups.require(name.removeprefix(RETRY_PREFIX), self._clock.now_ms())
        return topic, queue_id, ordinary

    def _made(self, header: SendMessage | SendMessageV2) -> TopicConfig:
        """Create an unknown topic if that is allowed. Raises: Refusal."""
        known = self._topics.get(header.topic)
        topic = self._topics.for_send(
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            self._clock.now_ms(),
            unit_mode=bool(header.unit_mode),
        )
        if known is None:
            log.info("topic.created", topic=topic.topic_name, by="use")
        return topic

    def _refuse_ordered(self, name: str) -> None:
        """Refuse topics that are not ordered: producers learn the other queues from the route."""
        known = self._topics.get(name)
        if known is not None and known.order:
            host = self.options.broker_ip1
            raise NoPermission(f"the broker[{host}] sending message is forbidden")

    def _queue_id(self, queue_id: int, topic: TopicConfig) -> int:
        """A queue id outside the writable ones: any writable queue for a negative id. Raises:
        Refusal.
        """
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise Refusal(
                INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic [{topic.topic_name}] has "
                f"{max(topic.write_queue_nums, topic.read_queue_nums)} queues",
            )
        if queue_id < 0:
            if topic.write_queue_nums <= 0:
                raise Refusal(SYSTEM_ERROR, f"topic [{topic.topic_name}] has no queue to write to")
            queue_id = self._random_queue(topic.write_queue_nums)
        return queue_id
