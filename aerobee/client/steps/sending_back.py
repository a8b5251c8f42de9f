"""Sends failed messages back to the broker, for a later delivery or as dead letters.

Source: client §9.4, semantics §7 (DefaultMQPushConsumerImpl.sendMessageBack).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.namespaces import wrapped
from aerobee.client.steps.answers import expect
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.routes import DEFAULT_TOPIC_QUEUES
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack, SendMessageV2
from aerobee.store.format import properties
from aerobee.store.format.system_names import AUTO_CREATE_TOPIC, RETRY_PREFIX

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance

MAX_RECONSUME = 16
"""The default of tries after the first one."""
WITHIN_S = 5.0
FIRST_RETRY_LEVEL = 3
"""The delay level of the first retry; it rises by one with each further retry."""
NOT_COPIED = frozenset({"TRAN_MSG", "DELAY", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "WAIT"})


def retry_topic(group: str) -> str:
    """The retry topic of a group."""
    return f"{RETRY_PREFIX}{group}"


def send_back(
    instance: Instance, group: str, message: ReceivedMessage, level: int, max_reconsume: int
) -> Steps[None]:
    """Have the broker deliver a message again; at level −1, or after `max_reconsume`, bury it.

    If the message's broker refuses it, it is sent as a new message to the group's retry topic,
    unless its body is as it is stored. Raises: AerobeeError if both fail.
    """
    try:
        yield from hand_back(instance, group, message, level, max_reconsume)
    except AerobeeError as error:
        if message.unreadable is not None:
            # Members would take the body of a new message as it is.
            raise
        about = f"send back {message.queue.broker_name}"
        instance.log_once(about, "%s is not taken back: %s", message.message_id, error)
        most = tries(max_reconsume)
        if level < 0:
            # The new message becomes a dead letter if it has no try left.
            most = min(most, message.reconsume_times)
        yield from _send_anew(instance, group, message, level, most)


def hand_back(
    instance: Instance, group: str, message: ReceivedMessage, level: int, max_reconsume: int
) -> Steps[None]:
    """Have the broker of a message deliver it again, by its physical offset.

    Raises: AerobeeError.
    """
    header = ConsumerSendMsgBack(
        offset=message.commit_log_offset,
        group=group,
        delay_level=level,
        origin_msg_id=message.message_id,
        origin_topic=message.original_topic,
        unit_mode=False,
        max_reconsume_times=tries(max_reconsume),
    )
    name = message.queue.broker_name
    yield from instance.locate(message.queue, WITHIN_S)
    ask = Ask(address=instance.master(name), header=header, timeout_s=WITHIN_S)
    expect(ask, (yield ask), name)
    instance.works_again(f"send back {name}")


def tries(max_reconsume: int) -> int:
    """The number of retries before a message becomes a dead letter."""
    return max_reconsume if max_reconsume >= 0 else MAX_RECONSUME


def _send_anew(
    instance: Instance, group: str, message: ReceivedMessage, level: int, most: int
) -> Steps[None]:
    route = yield from instance.route_to_publish(retry_topic(group), WITHIN_S)
    queue: MessageQueue = instance.random.choice(route.to_publish)
    named = {name: text for name, text in message.properties.items() if name not in NOT_COPIED}
    named.setdefault("RETRY_TOPIC", wrapped(message.topic, instance.config.namespace))
    named.setdefault("ORIGIN_MESSAGE_ID", message.message_id)
    named["DELAY"] = str(level if level > 0 else FIRST_RETRY_LEVEL + message.reconsume_times)
    header = SendMessageV2(
        producer_group=group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=instance.clock.wall_ms(),
        flag=message.flag,
        properties=properties.encode(named),
        reconsume_times=message.reconsume_times + 1,
        max_reconsume_times=most,
        unit_mode=False,
        batch=False,
        broker_name=queue.broker_name,
    )
    ask = Ask(
        address=instance.master(queue.broker_name),
        header=header,
        body=message.body,
        timeout_s=WITHIN_S,
    )
    expect(ask, (yield ask), queue.broker_name)
