"""What an administrator asks and orders, on every front, of our broker."""

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aerobee
import aerobee.blocking
from aerobee import ConsumeFrom, Message, MessageQueue, ReceivedMessage
from aerobee.admin import ConsumerLag, GroupConfig, GroupSubscription, MessageType, QueueLag
from aerobee.client.steps.admin import brokers
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConsumerNotOnlineError,
    MessageNotFoundError,
    PermissionDeniedError,
    RouteNotFoundError,
    SubscriptionError,
    UnsupportedRequestError,
)
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header
from tests.aerobee.client.fronts import Front

pytestmark = [pytest.mark.service, pytest.mark.anyio]


@pytest.fixture
def topic(fresh: Callable[[str], str]) -> str:
    return fresh("topic")


@pytest.fixture
def group(fresh: Callable[[str], str]) -> str:
    return fresh("group")


async def test_a_made_topic_can_be_used_at_once(front: Front, fresh: Callable[[str], str]) -> None:
    topic = fresh("topic")
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=3)
        assert topic in await admin.topics()
        assert len(await producer.queues(topic)) == 3
        assert (await producer.send(Message(topic, b"x"))).ok


async def test_brokers_are_left_out_by_one_administrator_and_not_by_others(front: Front) -> None:
    """The console has one client for all that a viewer does."""
    async with (
        front.client() as client,
        front.admin(client=client) as one,
        front.admin(client=client) as other,
    ):
        (broker,) = (await other.cluster_info()).brokers
        await one.leave_out([broker.address])
        with pytest.raises(BrokerNotFoundError):
            await one.topic_definitions()
        assert isinstance(await other.topic_definitions(), dict)
        await one.leave_out([])
        assert isinstance(await one.topic_definitions(), dict)


async def test_a_topic_changes_when_made_again(front: Front, fresh: Callable[[str], str]) -> None:
    topic = fresh("topic")
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=2)
        await admin.create_topic(topic, queues=5, perm=4)
        async with front.producer() as producer:
            with pytest.raises(RouteNotFoundError, match="can be written"):
                await producer.send(Message(topic, b"x"))
        async with front.consumer(fresh("group")) as consumer:
            assert len(await consumer.queues(topic)) == 5


@pytest.mark.parametrize(
    "wrong", [{"name": "a b"}, {"name": "T", "queues": 0}, {"name": "T", "perm": 5}]
)
async def test_what_can_never_be_a_topic_is_refused(front: Front, wrong: dict[str, object]) -> None:
    async with front.admin() as admin:
        with pytest.raises(ConfigurationError):
            await admin.create_topic(**wrong)


# ── Topics ──


@pytest.mark.since("5.0.0")
async def test_what_is_not_named_stays_when_a_topic_changes(front: Front, topic: str) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=4, perm=6, message_type=MessageType.FIFO)
        (changed,) = await admin.change_topic(topic, write_queues=2)
        assert (changed.read_queues, changed.write_queues, changed.perm) == (4, 2, 6)
        (config,) = await admin.topic_configs(topic)
        assert (config.read_queues, config.write_queues) == (4, 2)
        assert config.message_type is MessageType.FIFO


@pytest.mark.since("5.0.0")
async def test_a_topic_is_described_with_queues_messages_and_groups(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=3)
        queues = await producer.queues(topic)
        for number, queue in enumerate(queues):
            for _ in range(number):
                await producer.send(Message(topic, b"x"), queue=queue)
        await commit(admin, group, topic)
        found = await admin.describe_topic(topic)
        assert [one.messages for one in found.queues] == [0, 1, 2]
        assert [one.last_stored_at is None for one in found.queues] == [True, False, False]
        assert (found.messages, found.hidden_by(2), found.hidden_by(1)) == (3, 2, 3)
        assert list(found.groups) == [group] == await admin.topic_groups(topic)


class NobodysRequest(Header):
    """A request of controllers, which no broker serves."""

    code = RequestCode.CLEAN_BROKER_DATA


async def test_a_request_that_is_not_served_is_refused_with_code_and_version(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "GetBrokerConfig", NobodysRequest)
    async with front.admin() as admin:
        text = r"CLEAN_BROKER_DATA.*request code 1011 is not served.*V\d_\d_\d"
        with pytest.raises(UnsupportedRequestError, match=text):
            await admin.broker_config()


async def test_settings_change_while_the_broker_runs(front: Front) -> None:
    async with front.admin() as admin:
        await admin.update_broker_config({"deleteWhen": "05", "fileReservedTime": "48"})
        found = await admin.broker_config()
        assert (found["deleteWhen"], found["fileReservedTime"]) == ("05", "48")


@pytest.mark.ours
async def test_settings_that_cannot_be_changed_are_refused_all_together(front: Front) -> None:
    async with front.admin() as admin:
        before = (await admin.broker_config())["deleteWhen"]
        with pytest.raises(PermissionDeniedError, match="brokerName: can not change while running"):
            await admin.update_broker_config({"deleteWhen": "06", "brokerName": "x"})
        with pytest.raises(BrokerError, match="25 is not an hour"):
            await admin.update_broker_config({"deleteWhen": "25"})
        assert (await admin.broker_config())["deleteWhen"] == before


async def test_a_deleted_topic_is_gone_and_can_be_made_anew(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic)
        await producer.send(Message(topic, b"x"))
        await commit(admin, group, topic, 1)
        await admin.delete_topic(topic)
        assert topic not in await admin.topics()
        assert await admin.group_topics(group) == []
        await admin.create_topic(topic)
        assert (await admin.describe_topic(topic)).messages == 0


async def test_a_topic_that_is_not_there_is_an_error(front: Front) -> None:
    async with front.admin() as admin:
        with pytest.raises(RouteNotFoundError, match="never-made"):
            await admin.describe_topic("never-made")


async def test_system_topics_are_known(front: Front) -> None:
    async with front.admin() as admin:
        assert set(await admin.system_topics()) & {"TBW102", "SELF_TEST_TOPIC"}


# ── Groups ──


async def commit(admin: Any, group: str, topic: str, offset: int = 0) -> None:
    """Let a group be somewhere in a topic."""
    await admin.create_group(GroupConfig(name=group))
    await admin.reset_offsets(group, topic, offset)


async def test_a_group_is_made_listed_described_and_deleted(front: Front, group: str) -> None:
    async with front.admin() as admin:
        await admin.create_group(GroupConfig(name=group, retry_max=3))
        assert group in await admin.groups()
        await admin.create_group(GroupConfig(name=group, retry_max=3, enabled=False))
        found = await admin.describe_group(group)
        assert [(c.retry_max, c.enabled) for c in found.configs.values()] == [(3, False)]
        assert (list(found.connections.members), found.topics) == ([], [])
        await admin.delete_group(group)
        await admin.delete_group(group)
        assert group not in await admin.groups()
        with pytest.raises(ConfigurationError, match=group):
            await admin.describe_group(group)


async def test_lag_is_what_lies_behind_the_offset_of_a_group(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=1)
        (queue,) = await producer.queues(topic)
        for _ in range(5):
            await producer.send(Message(topic, b"x"))
        await commit(admin, group, topic, 2)
        lag = await admin.consumer_lag(group)
        assert (lag.total, list(lag.topics)) == (3, [topic])
        (one,) = lag.queues
        assert (one.queue, one.broker_offset, one.consumer_offset) == (queue, 5, 2)
        assert one.last_consumed_at is not None
        assert (await admin.consumer_lag(group, topic)).total == 3
        assert await admin.committed_offsets(group, topic) == {queue: 2}
        assert await admin.group_topics(group) == [topic]


async def test_the_lag_of_all_groups_is_that_of_each(front: Front, topic: str, group: str) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=2, order=True)
        await producer.send_batch([Message(topic, b"x") for _ in range(4)])
        await commit(admin, group, topic, 1)
        [found] = [one for one in await admin.all_consumer_lag() if one.group == group]
        assert found.queues == (await admin.consumer_lag(group)).queues
        assert (found.total, found.topics) == (3, [topic])
        # A group with offsets in a topic of its namespace only is nobody else's.
        async with front.admin(namespace="elsewhere") as other:
            assert group not in [one.group for one in await other.all_consumer_lag()]


async def test_the_progress_of_a_group_is_told_in_times(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=2)
        queue = (await producer.queues(topic))[0]
        sent = [await producer.send(Message(topic, b"x"), queue=queue) for _ in range(3)]
        times = [(await admin.message_at(one.queue, one.queue_offset)).stored_at for one in sent]
        await commit(admin, group, topic, 2)
        full, empty = await admin.consume_time_spans(group, topic)
        assert (full.queue, full.first_at, full.last_at) == (queue, times[0], times[2])
        assert full.consumed_at == times[1]
        assert 0 <= full.waiting_s < 60
        assert (empty.first_at, empty.last_at, empty.waiting_s) == (None, None, 0)
        with pytest.raises(RouteNotFoundError):
            await admin.consume_time_spans(group, f"{topic}-missing")


async def test_units_of_a_queue_are_told_as_they_are_stored(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=1)
        for tag in ("A", "B"):
            sent = await producer.send(Message(topic, b"x", tag=tag))
        async with front.consumer(group) as consumer:
            await consumer.subscribe(topic, "B")
            found = await admin.queue_units(sent.queue, 0, count=5, group=group)
        assert (found.queue, found.first, found.end) == (sent.queue, 0, 2)
        # Java's hash of a text of one letter is the letter.
        units = [(one.queue_offset, one.tags_code, one.matches) for one in found.units]
        assert units == [(0, ord("A"), False), (1, ord("B"), True)]
        assert found.subscription == GroupSubscription(topic=topic, expression="B")
        first, second = found.units
        assert second.physical_offset >= first.physical_offset + first.size
        with pytest.raises(BrokerError, match=r"2|not exist"):
            await admin.queue_units(sent.queue, 2)
        with pytest.raises(BrokerNotFoundError, match=f"{topic} has no queues on broker other"):
            await admin.queue_units(MessageQueue(topic, "other", 0), 0)


async def test_a_group_that_is_nowhere_has_no_lag(front: Front, group: str) -> None:
    async with front.admin() as admin:
        lag = await admin.consumer_lag(group)
        assert (lag.total, list(lag.queues)) == (0, [])


# ── Offsets ──


async def test_a_dry_run_says_what_a_reset_would_change_and_changes_nothing(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=1)
        (queue,) = await producer.queues(topic)
        sent = [await producer.send(Message(topic, b"x")) for _ in range(4)]
        await commit(admin, group, topic, 1)
        last = await admin.message_at(queue, sent[3].queue_offset)
        later = last.stored_at + timedelta(seconds=1)
        for to, after in ((ConsumeFrom.LAST, 4), (later, 4), (99, 4), (2, 2)):
            (change,) = await admin.reset_offsets(group, topic, to, dry_run=True)
            assert (change.queue, change.before, change.after) == (queue, 1, after)
        assert await admin.committed_offsets(group, topic) == {queue: 1}
        assert await admin.reset_offsets(group, topic, ConsumeFrom.LAST, force=False) == []
        (change,) = await admin.reset_offsets(group, topic, ConsumeFrom.FIRST, force=False)
        assert change.after == 0
        assert await admin.committed_offsets(group, topic) == {queue: 0}
        assert await admin.reset_offsets(group, topic, 0) == []


@pytest.mark.since("5.2.0")
async def test_a_running_consumer_goes_on_where_it_is_put(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=1)
        for number in range(3):
            await producer.send(Message(topic, b"%d" % number))
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(topic)
            seen = await take(consumer, 3)
            assert [one.body for one in seen] == [b"0", b"1", b"2"]
            await consumer.commit()
            members = (await admin.consumers(group)).members
            assert [one.language for one in members] == ["PYTHON"]
            await admin.reset_offsets(group, topic, 1)
            await producer.send(Message(topic, b"3"))
            again = await take(consumer, 3)
            assert [one.body for one in again] == [b"1", b"2", b"3"]


async def take(consumer: Any, count: int) -> list[ReceivedMessage]:
    """So many messages, each of them done."""
    found: list[ReceivedMessage] = []
    with anyio.fail_after(30):
        while len(found) < count:
            messages = await consumer.poll(max_messages=count, timeout=1.0)
            consumer.done(*messages)
            found += messages
    return found


async def test_a_queue_that_is_not_there_is_not_reset(front: Front, topic: str, group: str) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=1)
        with pytest.raises(ConfigurationError, match="has no queue"):
            await admin.reset_offsets(group, topic, 0, queues=[MessageQueue(topic, "x", 7)])


@pytest.mark.since("5.0.0")
async def test_a_group_nobody_knows_is_not_reset(front: Front, topic: str, group: str) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=1)
        await producer.send(Message(topic, b"x"))
        with pytest.raises(SubscriptionError, match=group):
            await admin.reset_offsets(group, topic, ConsumeFrom.LAST)


@pytest.mark.since("5.0.0")
async def test_offsets_are_cloned(front: Front, topic: str, group: str) -> None:
    other = f"{group}-other"
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=2)
        for queue in await producer.queues(topic):
            for _ in range(3):
                await producer.send(Message(topic, b"x"), queue=queue)
        await commit(admin, group, topic, 2)
        await admin.create_group(GroupConfig(name=other))
        planned = await admin.clone_offsets(group, other, dry_run=True)
        assert [(one.before, one.after) for one in planned] == [(None, 2), (None, 2)]
        assert set((await admin.committed_offsets(other, topic)).values()) == {None}
        assert await admin.clone_offsets(group, other, topic=topic) == planned
        assert set((await admin.committed_offsets(other, topic)).values()) == {2}
        assert await admin.clone_offsets(group, other) == []


# ── Messages ──


async def test_messages_are_found_by_key_id_place_and_time(front: Front, topic: str) -> None:
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=2)
        one, two = [
            await producer.send(Message(topic, body, keys=["k", key], tag="A"))
            for body, key in ((b"1", "first"), (b"2", "second"))
        ]

        async def bodies(key: str, **named: Any) -> list[bytes]:
            return [found.body for found in await admin.query_messages(topic, key, **named)]

        with anyio.fail_after(30):  # the index follows the log
            while await bodies("k") != [b"1", b"2"]:
                await anyio.lowlevel.checkpoint()
        assert await bodies("second") == [b"2"]
        assert await bodies("k", max_messages=1) == [b"2"]
        assert await bodies("nothing") == []
        assert (await admin.view_message(one.offset_message_id)).body == b"1"
        assert (await admin.view_message(two.message_id, topic)).body == b"2"
        assert (await admin.message_at(two.queue, two.queue_offset)).body == b"2"
        found = await admin.find_messages(topic)
        assert [message.body for message in found] == [b"1", b"2"]
        first, second = found
        after = await admin.find_messages(topic, begin=second.stored_at, tag="A || B")
        assert b"2" in [message.body for message in after]
        assert await admin.find_messages(topic, end=first.stored_at) == []
        assert await admin.find_messages(topic, tag="B") == []
        times = await admin.offsets_for_time(topic, first.stored_at)
        assert times[one.queue] == 0
        read = await admin.read_messages(one.queue, one.queue_offset)
        assert read[0].message_id == one.message_id


async def test_a_message_that_is_not_there_is_an_error(front: Front, topic: str) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=1)
        (config,) = await admin.topic_configs(topic)
        with pytest.raises(MessageNotFoundError):
            await admin.message_at(MessageQueue(topic, config.broker, 0), 5)
        with pytest.raises(MessageNotFoundError):
            await admin.view_message("0" * 32, topic)
        with pytest.raises(ConfigurationError, match="name its topic"):
            await admin.view_message("nonsense")


# ── Clients ──


async def test_members_of_groups_are_listed(front: Front, topic: str, group: str) -> None:
    async with front.admin() as admin, front.producer(group=group) as producer:
        await admin.create_topic(topic, queues=1)
        await producer.send(Message(topic, b"x"))
        with anyio.fail_after(30):  # its heartbeat may come behind the send
            while not (members := await admin.producers(group)):
                await anyio.lowlevel.checkpoint()
        (member,) = members
        assert (member.language, member.address.startswith("127.0.0.1:")) == ("PYTHON", True)
        assert await admin.producers(f"{group}-none") == []
        assert list((await admin.consumers(group)).members) == []
        async with front.consumer(group) as consumer:
            await consumer.subscribe(topic, "A || B")
            found = await admin.consumers(group)
            assert [one.client_id for one in found.members] != []
            assert (topic, "A || B") in [(one.topic, one.expression) for one in found.subscriptions]
            (member,) = found.members
            info = await admin.running_info(group, member.client_id)
            assert [one.topic for one in info.subscriptions] == [topic]
        with pytest.raises(ConsumerNotOnlineError):
            await admin.running_info(group, "nobody")


def test_a_queue_that_was_cut_hides_no_lag_of_another() -> None:
    def lag(number: int, end: int, at: int) -> QueueLag:
        queue = MessageQueue("t", "b", number)
        return QueueLag(
            queue=queue,
            broker_offset=end,
            consumer_offset=at,
            in_flight=None,
            last_consumed_at=None,
        )

    behind = ConsumerLag(group="g", queues=[lag(0, 10, 4), lag(1, 5, 9)])
    assert [queue.lag for queue in behind.queues] == [6, 0]
    assert behind.total == 6


# ── Brokers ──


async def test_brokers_tell_their_settings_and_figures(front: Front, topic: str) -> None:
    async with front.admin() as admin, front.producer() as producer:
        (broker,) = (await admin.cluster_info()).brokers
        assert broker.is_master
        await admin.create_topic(topic, queues=1)
        await producer.send(Message(topic, b"x"))
        for name in (None, broker.name, broker.address):
            assert (await admin.broker_config(name))["brokerName"] == broker.name
        stats = await admin.broker_stats()
        assert re.fullmatch(r"V\d_\d_\d", stats["brokerVersionDesc"])
        assert int(stats["putMessageTimesTotal"]) >= 1
        with pytest.raises(BrokerNotFoundError, match="it knows"):
            await admin.broker_stats("no-such-broker")
        with pytest.raises(BrokerError, match="not exist"):
            await admin.stats_item("TOPIC_PUT_NUMS", "never-sent")
        for clean in ("delete_expired_files", "delete_expired_queues", "clean_unused_topics"):
            await getattr(admin, clean)()


async def test_a_setting_stands_on_one_line(front: Front) -> None:
    async with front.admin() as admin:
        with pytest.raises(ConfigurationError, match="one line"):
            await admin.update_broker_config({"a": "1\nb=2"})


def test_methods_say_what_their_steps_say() -> None:
    for module in (aerobee, aerobee.blocking):
        signature = inspect.signature(module.AdminClient.reset_offsets)
        assert list(signature.parameters)[1:4] == ["group", "topic", "to"]
        assert "dry_run" in str(module.AdminClient.reset_offsets.__doc__)


# ── How a group consumes ──


@pytest.mark.since("5.0.0")
async def test_a_group_is_told_to_pop_or_to_pull_a_topic(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic)
        await admin.create_group(GroupConfig(name=group))
        for mode, share in (("POP", 2), ("PULL", 0)):
            await admin.set_request_mode(group, topic, mode, share=share)
            [found] = [one for one in await admin.request_modes() if one.group == group]
            assert (found.topic, found.mode, found.share) == (topic, mode, share)
        with pytest.raises(ConfigurationError, match="'PUSH', share 0: PULL or POP"):
            await admin.set_request_mode(group, topic, "PUSH")


@pytest.mark.ours
async def test_a_group_that_is_told_its_mode_first_is_made(front: Front, topic: str) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic)
        await admin.set_request_mode("nobody", topic, "POP")
        assert (await admin.describe_group("nobody")).name == "nobody"


@pytest.mark.since("5.0.0")
async def test_a_group_in_a_namespace_is_told_by_its_plain_name(
    front: Front, topic: str, group: str
) -> None:
    async with front.admin(namespace="ns") as inside, front.admin() as outside:
        await inside.create_topic(topic)
        await inside.create_group(GroupConfig(name=group))
        await inside.set_request_mode(group, topic, "POP")
        assert [one.topic for one in await inside.request_modes() if one.group == group] == [topic]
        names = [(one.topic, one.group) for one in await outside.request_modes()]
        assert (f"ns%{topic}", f"ns%{group}") in names


@pytest.mark.since("5.0.0")
async def test_a_group_may_be_kept_from_a_topic(front: Front, topic: str, group: str) -> None:
    async with front.admin() as admin:
        await admin.create_topic(topic)
        await admin.create_group(GroupConfig(name=group))
        [(broker, before)] = (await admin.readable(group, topic)).items()
        assert before
        assert await admin.set_readable(group, topic, False) == {broker: False}
        assert await admin.readable(group, topic) == {broker: False}
        assert await admin.set_readable(group, topic, True) == {broker: True}
