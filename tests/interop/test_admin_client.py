"""The admin client against Java's brokers, old and new: also what ours does not serve yet."""

from collections.abc import Callable, Iterator

import pytest

from aerobee import ConsumeFrom
from aerobee.admin import GroupConfig
from aerobee.blocking import (
    AdminClient,
    Message,
    PopConsumer,
    Producer,
    ReceivedMessage,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from aerobee.diagnosis import GroupState, MessageHistory
from aerobee.errors import BrokerError, RouteNotFoundError, UnsupportedRequestError
from tests.interop.conftest import GetClient
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.ours]

WITHIN_S = 30


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(scope="module")
def java_broker(
    version: str, java_namesrv: JavaNamesrv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaBroker]:
    place = tmp_path_factory.mktemp("java-admin")
    with JavaBroker(
        toolkit=toolkit(version),
        data=place / "data",
        home=place / "home",
        namesrv_address=java_namesrv.address,
        settings={
            "brokerName": "broker-of-admin",
            "brokerClusterName": "cluster-of-admin",
            # Without it 5.4.0 fails to delete a topic.
            "timerWheelEnable": "true",
        },
    ) as broker:
        yield broker


@pytest.fixture
def admin(java_broker: JavaBroker) -> Iterator[AdminClient]:
    with AdminClient(java_broker.namesrv_address) as admin:
        yield admin


@pytest.fixture
def client(version: str, java_client: GetClient) -> Iterator[JavaClient]:
    client = java_client(version, "JSON")
    yield client
    client.call("clear")


def test_a_topic_lives_and_dies(java_broker: JavaBroker, admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic, queues=2)
    (changed,) = admin.change_topic(topic, read_queues=4)
    assert (changed.read_queues, changed.write_queues) == (4, 2)
    with Producer(java_broker.namesrv_address) as producer:
        sent = producer.send(Message(topic, b"x", keys=["key"]))
    assert admin.view_message(sent.offset_message_id).body == b"x"
    assert admin.message_at(sent.queue, sent.queue_offset).body == b"x"

    def found_by_key() -> bool:
        return [one.body for one in admin.query_messages(topic, "key")] == [b"x"]

    eventually(found_by_key, within_s=WITHIN_S, what="the index has the message")
    assert admin.view_message(sent.message_id, topic).body == b"x"
    described = admin.describe_topic(topic)
    assert described.messages == 1
    # 4.9 tells of the queues that are written only.
    assert len(described.queues) in (2, 4)
    admin.delete_topic(topic)
    with pytest.raises(RouteNotFoundError):
        admin.describe_topic(topic)


def test_a_group_is_followed_and_moved(
    java_broker: JavaBroker, admin: AdminClient, client: JavaClient, topic: str
) -> None:
    admin.create_topic(topic, queues=1)
    group = f"{topic}-group"
    admin.create_group(GroupConfig(name=group, retry_max=5))
    assert admin.describe_group(group).configs["broker-of-admin"].retry_max == 5
    with Producer(java_broker.namesrv_address) as producer:
        for _ in range(3):
            producer.send(Message(topic, b"x"))
    client.consumer("c", java_broker.namesrv_address, topic, group=group)
    assert len(client.received("c", 3)) == 3
    client.commit("c")
    lags: list[int] = []

    def consumed() -> bool:
        lags.append(admin.consumer_lag(group, topic).total)
        return lags[-1] == 0

    eventually(consumed, within_s=WITHIN_S, what=f"no lag, after {lags}")
    found = admin.consumers(group)
    (member,) = found.members
    assert (member.language, found.message_model) == ("JAVA", "CLUSTERING")
    assert topic in [one.topic for one in found.subscriptions]
    running = admin.running_info(group, member.client_id)
    assert [one.commit_offset for one in running.queues if one.queue.topic == topic] == [3]
    assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    diagnosis = admin.diagnose_group(group)
    assert (diagnosis.findings, diagnosis.moves, diagnosis.lag) == ([], True, 0)
    [described] = diagnosis.members
    assert (described.strategy, described.answered, described.orderly) == ("AVG", True, False)
    [held] = [one for one in diagnosis.queues if one.queue.topic == topic]
    assert (held.owners, held.consumer_offset) == ([member.client_id], 3)
    client.call("clear")

    def nobody() -> bool:
        return not admin.consumers(group).members

    eventually(nobody, within_s=WITHIN_S, what="the consumer has left")
    (change,) = admin.reset_offsets(group, topic, ConsumeFrom.FIRST)
    assert (change.before, change.after) == (3, 0)
    assert admin.consumer_lag(group, topic).total == 3
    diagnosis = admin.diagnose_group(group)
    assert [one.kind for one in diagnosis.findings] == ["nobody_online"]
    assert not diagnosis.moves
    admin.delete_group(group)
    assert group not in admin.groups()


def stats_of(admin: AdminClient, broker: str) -> dict[str, str]:
    """None yet from a Java broker that is too young for its first sample: it answers an error."""
    try:
        return admin.broker_stats(broker)
    except BrokerError as error:
        if "NoSuchElementException" not in str(error):
            raise
        return {}


def test_a_broker_is_changed_while_it_runs(java_broker: JavaBroker, admin: AdminClient) -> None:
    (broker,) = [one for one in admin.cluster_info().brokers if one.cluster == "cluster-of-admin"]
    admin.update_broker_config({"deleteWhen": "05"}, broker.name)
    assert admin.broker_config(broker.name)["deleteWhen"] == "05"
    assert "putTps" in eventually(lambda: stats_of(admin, broker.name), within_s=20, what="stats")
    assert isinstance(admin.all_producers(), dict)
    with pytest.raises(BrokerError):
        admin.running_info("nobody", "nowhere")


def test_what_became_of_a_message_is_told(
    version: str, java_broker: JavaBroker, admin: AdminClient, topic: str
) -> None:
    names = java_broker.namesrv_address
    admin.create_topic(topic, queues=1)
    admin.create_group(GroupConfig(name=f"{topic}-g"))

    def history(message_id: str, said: str) -> MessageHistory:
        def look() -> MessageHistory | None:
            found = admin.explain_message(message_id, topic)
            return found if said in found.text else None

        found = eventually(look, within_s=WITHIN_S, what=said)
        assert found is not None
        return found

    with Producer(names) as producer:
        sent = producer.send(Message(topic, b"x", tag="a"))
        delayed = producer.send(Message(topic, b"x", delay_level=18))
    admin.reset_offsets(f"{topic}-g", topic, 1)
    found = history(sent.message_id, f"stored in {sent.queue}@0")
    assert [(one.group, one.state) for one in found.groups] == [(f"{topic}-g", GroupState.PASSED)]
    assert admin.explain_message(sent.offset_message_id).text == found.text
    (copy,) = history(delayed.message_id, "delayed by level 18 until").copies
    assert (copy.waits, copy.due_at is not None) == (True, True)
    with TransactionProducer(names, group=topic, checker=unknown) as transactions:
        states = (TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK)
        halves = [transactions.send_in_transaction(Message(topic, b"x"), ended(s)) for s in states]
    texts = ("is open", "was committed", "rolled back")
    if version.startswith("4."):
        # It lets nobody pull the ends of transactions.
        texts = ("cannot be told", "was committed", "cannot be told")
    for half, said in zip(halves, texts, strict=True):
        history(half.message_id, said)
    if version.startswith("4."):
        return
    with Producer(names) as producer:
        timed = producer.send(Message(topic, b"x", delay=60.0))
    history(timed.message_id, "waits for its time")
    with PopConsumer(f"{topic}-g", names, invisible=60.0) as consumer:
        (message,) = consumer.receive(topic, max_messages=1)

        def state() -> GroupState:
            (group,) = admin.explain_message(message.message_id, topic).groups
            return group.state

        eventually(lambda: state() is GroupState.INVISIBLE, within_s=WITHIN_S, what="invisible")
        consumer.ack(message)
        eventually(lambda: state() is GroupState.PASSED, within_s=WITHIN_S, what="acknowledged")


def unknown(_: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


def ended(state: TransactionState) -> Callable[[Transaction], TransactionState]:
    return lambda _: state


def test_how_a_group_consumes_is_set(
    java_broker: JavaBroker, admin: AdminClient, client: JavaClient, version: str, topic: str
) -> None:
    admin.create_topic(topic, queues=1)
    admin.create_group(GroupConfig(name=topic))
    with Producer(java_broker.namesrv_address) as producer:
        producer.send(Message(topic, b"x"))
    client.consumer("c", java_broker.namesrv_address, topic, group=topic)
    assert len(client.received("c", 1)) == 1
    if version.startswith("4."):
        with pytest.raises(UnsupportedRequestError):
            admin.set_request_mode(topic, topic, "POP")
        return
    admin.set_request_mode(topic, topic, "POP", share=1)
    [mode] = [one for one in admin.request_modes() if one.group == topic]
    assert (mode.topic, mode.mode, mode.share) == (topic, "POP", 1)
    assert admin.set_readable(topic, topic, False) == {"broker-of-admin": False}
    with Producer(java_broker.namesrv_address) as producer:
        producer.send(Message(topic, b"x"))
    assert len(client.received("c", 2, within_s=1)) == 1
    assert admin.set_readable(topic, topic, True) == {"broker-of-admin": True}
    assert len(client.received("c", 2)) == 2
