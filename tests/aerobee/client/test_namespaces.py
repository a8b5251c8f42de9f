"""A client in a namespace of 4.x, on every front: it speaks plainly, brokers hear names in full."""

from collections.abc import Sequence

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee import ConsumeFrom, Message, ReceivedMessage, TransactionState
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, PushConsumer
from aerobee.client.namespaces import Translation, plain, wrapped
from aerobee.errors import ConfigurationError
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import RESPONSE, Command
from tests.aerobee.client.aio.test_push_consumer import Fresh, until
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker

NS = "shop"
FIRST = ConsumeFrom.FIRST
names = st.text("%|-_abcXYZ019", min_size=1, max_size=20)


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(
        messageDelayLevel="1s 1s 1s 1s", transactionCheckInterval=1_000, transactionTimeOut=1_000
    )


# ── Names ──


@given(names)
def test_what_is_wrapped_is_plain_again(name: str) -> None:
    assert plain(wrapped(name, NS), NS) in {name, plain(name, NS)}
    assert wrapped(wrapped(name, NS), NS) == wrapped(name, NS)
    assert wrapped(name, None) == plain(name, None) == name


def arrived(body: bytes, code: int = 0, flag: int = RESPONSE, **ext: str) -> Command:
    return Translation(NS).arrived(Command(code, 1, flag, body=body, ext=ext))


def test_lists_of_a_broker_show_the_namespace_and_the_system_only() -> None:
    body = b'{"topicList":["shop%A","A","other%A","TBW102","%RETRY%shop%G","%RETRY%G"]}'
    assert msgspec.json.decode(arrived(body).body) == {"topicList": ["A", "TBW102", "%RETRY%G"]}
    body = b'{"subscriptionGroupTable":{"shop%G":{"groupName":"shop%G"},"G":{"groupName":"G"}}}'
    table = {"subscriptionGroupTable": {"G": {"groupName": "G"}}}
    assert msgspec.json.decode(arrived(body).body) == table


def test_queues_as_keys_stay_objects() -> None:
    body = b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"shop%T"}:7}}'
    assert bytes(arrived(body).body) == body.replace(b"shop%T", b"T")
    assert Translation(NS).answer(bytes(arrived(body).body)) == body


@pytest.mark.parametrize(
    "body", [b"{", b'{"topic":', b"[1", b"\x00\x01", b'{"a":' + b"9" * 30 + b"}"]
)
def test_what_is_no_json_arrives_as_it_is(body: bytes) -> None:
    assert arrived(body).body == body


def test_what_users_send_to_each_other_is_not_looked_into() -> None:
    body = b'{"topic": "T", "group": "G"}'
    code = int(RequestCode.SEND_MESSAGE_V2)
    assert Translation(NS).request(code, {"b": "T", "i": "topic"}, body) == (
        {"b": "shop%T", "i": "topic"},
        body,
    )
    pushed = arrived(body, int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT), 0, topic="shop%R")
    assert (pushed.ext, pushed.body) == ({"topic": "R"}, body)


def test_a_header_that_cannot_be_read_is_left_to_its_reader() -> None:
    strange = msgspec.Raw(b'"x"')
    assert Translation(NS).arrived(Command(40, ext=strange)).ext == strange


# ── Clients ──


def full(name: str) -> str:
    return f"{NS}%{name}"


async def consumed(front: Front, group: str, topic: str, **options: object) -> ReceivedMessage:
    async with front.consumer(group, start_from=FIRST, **options) as consumer:
        await consumer.subscribe(topic)
        found: list[ReceivedMessage] = []
        while not found:
            found = await consumer.poll(timeout=1.0)
        consumer.done(found[0])
        await consumer.commit()
        assert {queue.topic for queue in consumer.assignment} == {topic}
        assert await consumer.committed(found[0].queue) == 1
    return found[0]


@pytest.mark.service
@pytest.mark.anyio
async def test_who_is_outside_sees_full_names(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.producer(namespace=NS) as producer:
        sent = await producer.send(Message(topic, b"x", keys=["k"]))
        assert sent.queue in await producer.queues(topic)
        batch = await producer.send_batch([Message(topic, b"y", ordering_key="a")] * 2)
    assert {sent.queue.topic, *(one.queue.topic for one in batch)} == {topic}
    mine = await consumed(front, group, topic, namespace=NS)
    assert (mine.topic, mine.original_topic, mine.queue.topic) == (topic, topic, topic)
    assert mine.properties["INSTANCE_ID"] == NS
    theirs = await consumed(front, full(fresh("group")), full(topic))
    assert theirs.topic == full(topic)
    async with front.admin() as admin, front.admin(namespace=NS) as inside:
        assert (await inside.query_messages(topic, "k"))[0].topic == topic
        assert (await admin.query_messages(full(topic), "k"))[0].topic == full(topic)
        committed = await admin.committed_offsets(full(group), full(topic))
        assert sum(filter(None, committed.values())) == 1


@pytest.mark.service
@pytest.mark.anyio
async def test_what_fails_comes_again_and_dies_under_its_plain_name(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.producer(namespace=NS) as producer:
        await producer.send_batch([Message(topic, b"x"), Message(topic, b"y")])
    seen: list[tuple[str, str, bytes, int]] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        for one in messages:
            seen.append((one.topic, one.original_topic, one.body, one.reconsume_times))
            if one.body == b"x":
                raise ValueError("on purpose")

    options = {"namespace": NS, "start_from": FIRST, "max_reconsume": 1}
    consumer = front.push(group, **options)
    consumer.subscribe(topic, handler=front.handler(handle))
    async with consumer, front.admin(namespace=NS) as inside, front.admin() as outside:
        await until(lambda: len(seen) >= 3)
        info = await inside.running_info(
            group, (await inside.consumers(group)).members[0].client_id
        )
        assert {one.queue.topic for one in info.queues} == {topic, f"%RETRY%{group}"}
        dead, full_dead = f"%DLQ%{group}", f"%DLQ%{full(group)}"

        async def died() -> bool:
            return full_dead in await outside.topics()

        while not await died():  # noqa: ASYNC110  (brokers tell nobody)
            await anyio.sleep(0.05)
        assert dead in await inside.topics()
    assert sorted(seen) == [
        (topic, topic, b"x", 0),
        (topic, topic, b"x", 1),
        (topic, topic, b"y", 0),
    ]


@pytest.mark.service
@pytest.mark.anyio
async def test_orderly_consumers_lock_and_share_in_a_namespace(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.producer(namespace=NS) as producer:
        await producer.send_batch([Message(topic, b"%d" % n, ordering_key="k") for n in range(5)])
    seen: list[bytes] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        seen.extend(one.body for one in messages)

    consumer = front.push(
        group, namespace=NS, start_from=FIRST, orderly=True, strategy="CONSISTENT_HASH"
    )
    consumer.subscribe(topic, handler=front.handler(handle))
    async with consumer:
        await until(lambda: len(seen) == 5)
    assert seen == [b"%d" % n for n in range(5)]


@pytest.mark.service
@pytest.mark.anyio
@pytest.mark.parametrize("front_name", ["blocking"])
@pytest.mark.since("5.0.0")
async def test_popped_messages_are_acknowledged_in_a_namespace(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.admin(namespace=NS) as admin:
        await admin.create_topic(topic, queues=1)
        await admin.create_group(GroupConfig(name=group))
    async with front.producer(namespace=NS) as producer:
        await producer.send_batch([Message(topic, b"x"), Message(topic, b"y")])
    async with front.pop(group, namespace=NS, start_from=FIRST, invisible=1.0) as consumer:
        got: list[ReceivedMessage] = []
        while len(got) < 2:
            got += await consumer.receive(topic, wait=2.0)
        assert {one.topic for one in got} == {topic}
        await consumer.ack(got[0])
        again: list[ReceivedMessage] = []
        while not again:
            again = await consumer.receive(topic, wait=5.0)
        assert [one.body for one in again] == [got[1].body]
        # It lies in a retry topic now, whose name is made of both names in full.
        assert (again[0].topic, again[0].original_topic) == (topic, topic)
        await consumer.extend(again[0], 30.0)
        await consumer.ack(again[0])
    async with front.admin() as admin:
        assert full(group) in await admin.groups()


@pytest.mark.service
@pytest.mark.anyio
async def test_a_transaction_is_checked_in_a_namespace(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    asked: list[tuple[str, bytes]] = []

    def check(half: ReceivedMessage) -> TransactionState:
        asked.append((half.topic, half.body))
        return TransactionState.COMMIT

    options = {"group": group, "checker": check, "namespace": NS}
    async with front.transaction_producer(**options) as producer:
        await producer.send_in_transaction(Message(topic, b"x"), lambda _: TransactionState.UNKNOWN)
        assert (await consumed(front, fresh("group"), topic, namespace=NS)).body == b"x"
    assert set(asked) == {(topic, b"x")}


@pytest.mark.service
@pytest.mark.anyio
async def test_a_request_is_answered_in_a_namespace(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.admin(namespace=NS) as admin:
        await admin.create_topic(topic, queues=1)
    async with front.producer(namespace=NS, group=fresh("asker")) as producer:
        consumer = front.push(fresh("group"), namespace=NS, start_from=FIRST)
        answer_with = producer.wrapped.reply if front.blocking else producer.reply

        def blocking(messages: list[ReceivedMessage]) -> None:
            answer_with(messages[0], b"!")

        async def handler(messages: list[ReceivedMessage]) -> None:
            await answer_with(messages[0], b"!")

        consumer.subscribe(topic, handler=blocking if front.blocking else handler)
        async with consumer:
            answer = await producer.request(Message(topic, b"?"), timeout=10.0)
    assert answer.body == b"!"


@pytest.mark.service
@pytest.mark.anyio
async def test_an_admin_sees_and_changes_its_namespace_only(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.admin(namespace=NS) as inside, front.admin() as outside:
        await inside.create_topic(topic, queues=2)
        await outside.create_topic(f"{topic}-outside", queues=1)
        await inside.create_group(GroupConfig(name=group))
        listed = await inside.topics()
        assert topic in listed
        assert f"{topic}-outside" not in listed
        assert {topic, full(topic)} & set(await outside.topics()) == {full(topic)}
        assert group in await inside.groups()
        assert (await inside.describe_group(group)).configs.popitem()[1].name == group
        described = await inside.describe_topic(topic)
        assert {one.queue.topic for one in described.queues} == {topic}
        async with front.producer(namespace=NS) as producer:
            await producer.send(Message(topic, b"x"))
        changes = await inside.reset_offsets(group, topic, ConsumeFrom.LAST)
        assert {one.queue.topic for one in changes} == {topic}
        lag = await inside.consumer_lag(group, topic)
        assert {one.queue.topic for one in lag.queues} == {topic}
        await inside.delete_topic(topic)
        await inside.delete_group(group)
        assert full(topic) not in await outside.topics()


def test_two_namespaces_and_names_in_full_are_refused(broker: AnyBroker) -> None:
    where = broker.namesrv_address
    with pytest.raises(ConfigurationError, match="in one of them"):
        AdminClient(where, namespace=NS, namespace_v2=NS)
    with pytest.raises(ConfigurationError, match="% ends it"):
        AdminClient(where, namespace="a%b")
    with pytest.raises(ConfigurationError, match="namespace ''"):
        AdminClient(where, namespace="")
    with (
        pytest.raises(ConfigurationError, match="write G"),
        PushConsumer(full("G"), where, namespace=NS),
    ):
        pass
    consumer = PushConsumer("G", where, namespace=NS)
    with pytest.raises(ConfigurationError, match="write T"):
        consumer.subscribe(full("T"), handler=print)
