"""Read permissions: the checks that pulling and popping share, with the remarks clients know.

Source: semantics §1.1, §11.1 (PullMessageProcessor, PopMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.consumers.consumer_offsets import OWN_GROUPS
from aerobee.broker.errors import NoPermission, Refusal, TopicNotExist
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pull import PullMessageRefused

if TYPE_CHECKING:
    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.topics.rates import Rates
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.store.clock import Clock

READ_BIT: Final = 4
BROKER_FORBIDDEN: Final = 1
GROUP_FORBIDDEN: Final = 2
TOPIC_FORBIDDEN: Final = 3


class ReadAccess:
    """Each method is one check, and raises Refusal where it fails. The caller knows the order."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        topics: TopicTable,
        groups: GroupTable,
        rates: Rates,
        clock: Clock,
    ) -> None:
        """`rates`: how fast groups may receive."""
        self.options = options
        self._topics = topics
        self._groups = groups
        self._rates = rates
        self._clock = clock

    def pull(self, group_name: str, topic_name: str, queue_id: int) -> None:
        """All of them, in the order of a pull. Hot."""
        topic = self._topics.get(topic_name)
        group = self._groups.get(group_name)
        if (
            topic is None
            or group is None
            or not self.options.broker_permission & topic.perm & READ_BIT
            or not group.consume_enable
            or group.attributes
            or not 0 <= queue_id < topic.read_queue_nums
            or group_name in OWN_GROUPS
        ):
            self.broker()
            self.group(group_name)
            self.queue(self.topic(topic_name), queue_id)

    def broker(self) -> None:
        """The broker is readable."""
        if not self.options.broker_permission & READ_BIT:
            raise forbidden(BROKER_FORBIDDEN, "the broker pulling message is forbidden")

    def group(self, name: str) -> None:
        """The group is not the broker's own, exists or may be created, may consume, and does not
        so too fast.
        """
        if name in OWN_GROUPS:
            raise forbidden(GROUP_FORBIDDEN, f"the group[{name}] belongs to the broker itself")
        group = self._groups.configs.get(name)
        if group is None:
            group = self._groups.require(name, self._clock.now_ms())
        if not group.consume_enable:
            raise forbidden(GROUP_FORBIDDEN, f"subscription group no permission, {name}")
        if group.attributes:
            self._rates.admit(name, group.attributes)

    def still(self, group_name: str, topic_name: str, queue_id: int) -> bool:
        """Whether a pull that was held may go on waiting, after a change of its topic or group."""
        topic, group = self._topics.get(topic_name), self._groups.configs.get(group_name)
        return (
            topic is not None
            and group is not None
            and group.consume_enable
            and bool(topic.perm & READ_BIT)
            and queue_id < topic.read_queue_nums
        )

    def group_is_there(self, name: str) -> None:
        """The group of a held request was not deleted meanwhile: what waits makes none anew."""
        self._groups.existing(name)

    def delivered(self, group_name: str, count: int, size: int) -> None:
        """Take what a group gets from its rate: messages, and bytes of records. Hot."""
        if self._rates.limited:
            group = self._groups.get(group_name)
            if group is not None and group.attributes:
                self._rates.spend(group_name, group.attributes, count, size)

    def topic(self, name: str) -> TopicConfig:
        """The topic exists and is readable."""
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotExist(name)
        if not topic.perm & READ_BIT:
            raise forbidden(TOPIC_FORBIDDEN, f"the topic[{name}] pulling message is forbidden")
        return topic

    def queue(self, topic: TopicConfig, queue_id: int, *, lowest: int = 0) -> None:
        """The topic has this queue; `lowest` −1 where that stands for all of them."""
        if not lowest <= queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )


def forbidden(kind: int, remark: str) -> NoPermission:
    """The refusal, with the field that names the missing permission."""
    error = NoPermission(remark)
    error.header = PullMessageRefused(forbidden_type=kind)
    return error
