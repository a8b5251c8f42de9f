"""What the SDK's producers do beyond sending, with Java brokers and beside Java's clients."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from aerobee import ConsumeFrom
from aerobee.blocking import (
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from aerobee.errors import BrokerError, ConfigurationError
from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.interop.test_directory_exchange import java_broker
from tests.kit.java import toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK
UNKNOWN = TransactionState.UNKNOWN
WITHIN_S = 30.0
OFTEN = {"transactionCheckInterval": 1_000, "transactionTimeOut": 4_000}
"""Longer than the 3 s for which Java's broker keeps the end of a transaction to itself."""
TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true", "traceTopicEnable": "true"}


@pytest.fixture(scope="module")
def new_broker(
    java_namesrv: JavaNamesrv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaBroker]:
    data = tmp_path_factory.mktemp("new") / "store"
    with java_broker("5.5.0", data, java_namesrv, **OFTEN, **TIMERS) as broker:
        yield broker


@contextmanager
def reading(broker: AnyBroker, topic: str) -> Iterator[PullConsumer]:
    """A consumer of a topic from its beginning."""
    group, names = f"{topic}-g", broker.namesrv_address
    with PullConsumer(group, names, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign(consumer.queues(topic))
        yield consumer


def bodies(consumer: PullConsumer, wanted: set[bytes]) -> set[bytes]:
    """What has arrived, once all that is wanted is there."""
    got: set[bytes] = set()
    ended = threading.Event()
    late = threading.Timer(WITHIN_S, ended.set)
    late.start()
    while not wanted <= got and not ended.is_set():
        got |= {message.body for message in consumer.poll(timeout=0.2)}
    late.cancel()
    return got


def test_a_java_broker_keeps_our_timers_and_gives_them_back(
    new_broker: JavaBroker, topic: str
) -> None:
    with Producer(new_broker.namesrv_address) as producer:
        producer.send(Message(topic, b"now"))
        gone = producer.send(Message(topic, b"gone", delay=4))
        producer.send(Message(topic, b"later", delay=4))
        assert producer.recall(topic, gone.recall_handle) == gone.message_id
        with reading(new_broker, topic) as consumer:
            assert bodies(consumer, {b"now", b"later"}) == {b"now", b"later"}
        with pytest.raises(BrokerError, match="RECALL_MESSAGE"):
            producer.recall(topic, gone.recall_handle)


def check_transactions(broker: JavaBroker, topic: str) -> None:
    """Ends at once and ends after a question, of which the second client is asked."""
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT if message.body in {b"yes", b"later"} else ROLLBACK

    group = f"{topic}-p"
    with TransactionProducer(
        broker.namesrv_address, checker=lambda _: UNKNOWN, group=group
    ) as first:
        first.send(Message(topic, b"plain"))
        first.send_in_transaction(Message(topic, b"later"), lambda _: UNKNOWN)
        first.send_in_transaction(Message(topic, b"never"), lambda _: UNKNOWN)
        first.send_in_transaction(Message(topic, b"no"), lambda _: ROLLBACK)
        with first.transaction(Message(topic, b"yes")):
            pass
    wanted = {b"plain", b"yes", b"later"}
    with (
        TransactionProducer(broker.namesrv_address, checker=check, group=group),
        reading(broker, topic) as consumer,
    ):
        assert bodies(consumer, wanted) == wanted
    # 5.4.0 may also ask about what has ended just now.
    assert b"later" in asked


def test_a_java_broker_asks_and_is_told(new_broker: JavaBroker, topic: str) -> None:
    check_transactions(new_broker, topic)


def test_an_old_java_broker_has_no_timers_but_asks_and_is_told(tmp_path: Path, topic: str) -> None:
    # A name server of its own: topics that are not made yet go to all brokers of a name server,
    # and those that have timers would take the message.
    namesrv = JavaNamesrv(toolkit("5.5.0"), tmp_path / "namesrv")
    with ExitStack() as running:
        running.callback(namesrv.stop)
        broker = running.enter_context(java_broker("4.9.7", tmp_path / "store", namesrv, **OFTEN))
        with Producer(broker.namesrv_address) as producer:
            with pytest.raises(ConfigurationError, match="V4_9_7 and has no timers"):
                producer.send(Message(topic, b"x", delay=4))
            assert producer.send(Message(topic, b"plain", delay_level=1)).ok
        check_transactions(broker, topic)


def test_java_answers_us_and_we_answer_java(
    java_client: GetClient, start_broker: StartBroker, new_broker: JavaBroker, topic: str
) -> None:
    java = java_client("5.5.0", "JSON")
    for broker in (new_broker, start_broker()):
        names = broker.namesrv_address
        with Producer(names) as producer:
            producer.send(Message(topic, b"makes the topic"))
            java.answerer("a", names, topic, suffix="!")
            assert producer.request(Message(topic, b"who"), timeout=WITHIN_S).body == b"who!"
            java.call("clear")
            with reading(broker, topic) as consumer, answering(producer, consumer):
                assert java.request(names, topic, ["how", "why"]) == ["how?!", "why?!"]


def check_trace(broker: AnyBroker, topic: str, java: JavaClient) -> None:
    names = broker.namesrv_address
    with TransactionProducer(names, checker=lambda _: COMMIT, group=topic, trace=True) as producer:
        sent = producer.send(Message(topic, b"x", tag="A", keys=["k1"]))
        producer.send_in_transaction(Message(topic, b"x"), lambda _: COMMIT)
    readers = [f"{topic}-push", f"{topic}-pull", f"{topic}-pop"]
    handled = threading.Event()

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        if sent.message_id in [message.message_id for message in messages]:
            handled.set()

    first = ConsumeFrom.FIRST
    push = PushConsumer(readers[0], names, start_from=first, trace=True)
    push.subscribe(topic, handler=handle)
    with push, PullConsumer(readers[1], names, start_from=first, trace=True) as pull:
        pull.subscribe(topic)

        def pulled() -> bool:
            return sent.message_id in [message.message_id for message in pull.poll(timeout=0.5)]

        eventually(pulled, within_s=WITHIN_S, what="the message")
        assert handled.wait(WITHIN_S)
    with PopConsumer(readers[2], names, start_from=first, trace=True) as pop:
        popped: list[ReceivedMessage] = []
        while sent.message_id not in [message.message_id for message in popped]:
            popped += pop.receive(topic, wait=WITHIN_S)
        pop.ack(*popped)

    def found() -> bool:
        said = java.mqadmin(names, "queryMsgTraceById", "-i", sent.message_id)
        return all(word in said for word in ("Pub", "Sub", topic, *readers, "success"))

    # What follows the log into the index may take a moment.
    eventually(found, within_s=60, what="the trace")
    with reading(broker, "RMQ_SYS_TRACE_TOPIC") as consumer:
        kinds: set[bytes] = set()

        def both() -> bool:
            for trace in consumer.poll(timeout=0.5):
                records = trace.body.split(b"\x02")
                kinds.update(one.partition(b"\x01")[0] for one in records if topic.encode() in one)
            return {b"Pub", b"EndTransaction"} <= kinds

        eventually(both, within_s=WITHIN_S, what="records of the send and of the end")


def test_javas_tool_finds_the_trace_of_what_we_sent_to_java(
    new_broker: JavaBroker, topic: str, java_client: GetClient
) -> None:
    check_trace(new_broker, topic, java_client("5.5.0", "JSON"))


def test_javas_tool_finds_the_trace_of_what_we_sent_here(
    start_broker: StartBroker, topic: str, java_client: GetClient
) -> None:
    check_trace(start_broker(traceTopicEnable=True), topic, java_client("5.5.0", "JSON"))


@contextmanager
def answering(producer: Producer, consumer: PullConsumer) -> Iterator[None]:
    """A thread that answers every request with its body and a suffix."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            for message in consumer.poll(timeout=0.2):
                if "CORRELATION_ID" in message.properties and message.body != b"who":
                    producer.reply(message, message.body + b"?!")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
