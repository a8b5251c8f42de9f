"""`aerobee why` of messages in each of their states."""

import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from aerobee.blocking import (
    AdminClient,
    ConsumeFrom,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from aerobee.diagnosis import GroupState
from aerobee.errors import MessageNotFoundError
from tests.aerobee.cli.conftest import Call, Done
from tests.conftest import AnyBroker, StartBroker
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

WITHIN_S = 20.0
A_MINUTE_S = 60.0


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(traceTopicEnable=True, recallMessageEnable=True)


@pytest.fixture(scope="module")
def producer(broker: AnyBroker) -> Iterator[Producer]:
    with Producer(broker.namesrv_address, trace=True) as producer:
        yield producer


@pytest.fixture
def topic(call: Call, topic: str) -> str:
    """A topic of one queue."""
    name = f"why-{topic}"
    done = call("topic", "create", name, "--queues", "1")
    assert done.code == 0, done.err
    return name


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as running:
        yield running


def until(
    call: Call, message_id: str, topic: str, there: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Ask until the answer is as wanted: indexes and offsets come a moment later."""

    def ask() -> dict[str, Any] | None:
        done = call("why", message_id, "--topic", topic, "--json")
        answer: dict[str, Any] = done.document
        return answer if there(answer) else None

    answer = eventually(ask, within_s=WITHIN_S, what=f"{message_id} as wanted")
    assert answer is not None
    return answer


def waits(answer: dict[str, Any]) -> bool:
    """Whether a copy of the message waits for its time."""
    return any(one["waits"] for one in answer["copies"])


def kinds(answer: dict[str, Any]) -> set[str]:
    return {one["kind"] for one in answer["copies"]}


def of_group(answer: dict[str, Any], group: str) -> dict[str, Any]:
    found: dict[str, Any] = {"state": None}
    for one in answer["groups"]:
        if one["group"] == group:
            found = one
    return found


def test_a_stored_message_is_found_by_each_of_its_names(
    call: Call, topic: str, producer: Producer
) -> None:
    sent = producer.send(Message(topic, b"hello", tag="paid", keys=["order-17"]))
    answer = until(call, sent.message_id, topic, lambda one: one["found"])
    assert answer["text"] == f"stored in {sent.queue}@0"
    (copy,) = answer["copies"]
    assert (copy["kind"], copy["message"]["body"], copy["waits"]) == ("stored", "hello", False)
    assert copy["size_bytes"] > len(b"hello")
    assert copy["physical_offset"] >= 0
    for names in (
        (sent.message_id.lower(),),
        (sent.offset_message_id,),
        (f"{sent.queue}@0",),
    ):
        done = call("why", *names, "--json")
        assert (done.code, done.document["topic"]) == (0, topic), done.err
        assert done.document["message_id"] == sent.message_id
    (by_key,) = call("why", "--topic", topic, "--key", "order-17", "--json").document
    assert by_key["message_id"] == sent.message_id
    text = call("why", sent.message_id, "--topic", topic).out
    assert f"stored in {sent.queue}@0" in text


def test_what_nobody_has_is_told_with_what_that_may_mean(call: Call, topic: str) -> None:
    done = call("why", "7F000001AAAA18B4AAC2000000000001", "--topic", topic)
    assert done.code == 1
    assert "no broker has a message of this id; its client made the id at" in done.out
    done = call("why", "no-id-at-all", "--topic", topic)
    assert "nothing can be told from it" in done.out
    done = call("why", "--topic", topic, "--key", "nobody")
    assert (done.code, done.err) == (
        1,
        f"aerobee: topic {topic} has no message with key nobody\n",
    )
    assert call("why").code == call("why", "--key", "k").code == 2


def test_a_place_is_found_whatever_address_its_broker_has_now(start_broker: StartBroker) -> None:
    """As behind `advertised`, and in a container that was made anew."""
    before = start_broker()
    with Producer(before.namesrv_address) as producer:
        sent = producer.send(Message("moved", b"hello"))
    assert before.stop() == 0
    now = start_broker(before.data)
    assert now.address != before.address
    with AdminClient(now.namesrv_address) as admin:
        assert admin.view_message(sent.offset_message_id).body == b"hello"
        assert admin.explain_message(sent.offset_message_id).text == f"stored in {sent.queue}@0"
        # Neither a place without a record nor the same place of another host is this message.
        host, offset = sent.offset_message_id[:16], sent.offset_message_id[16:]
        for other in (f"{host}{1:016X}", f"C0A80001{host[8:]}{offset}"):
            with pytest.raises(MessageNotFoundError):
                admin.view_message(other, "moved")
            history = admin.explain_message(other, "moved")
            assert not history.found
            assert "no broker has a message of this id, which is offset" in history.text


def test_groups_passed_it_or_not_or_do_not_want_it(
    call: Call, topic: str, producer: Producer, broker: AnyBroker, running: ExitStack
) -> None:
    for tag in ("paid", "sent", "paid"):
        sent = producer.send(Message(topic, b"x", tag=tag))
    second = f"{sent.queue}@1"
    call("group", "create", f"{topic}-g")
    call("group", "reset", f"{topic}-g", topic, "--to", "offset:1", "--yes")
    answer = call("why", second, "--json").document
    found = of_group(answer, f"{topic}-g")
    assert (found["state"], found["consumer_offset"]) == ("not_reached", 1)
    assert "0 messages are before it (nobody is online)" in found["text"]
    assert of_group(call("why", f"{sent.queue}@0", "--json").document, f"{topic}-g")["state"] == (
        "passed"
    )
    consumer = PushConsumer(
        f"{topic}-g", broker.namesrv_address, start_from=ConsumeFrom.FIRST, commit_interval=1.0
    )
    consumer.subscribe(topic, "paid", handler=len)
    running.enter_context(consumer)

    def passed_over() -> bool:
        found = of_group(call("why", second, "--json").document, f"{topic}-g")
        return (found["state"], found.get("consumer_offset")) == ("filtered", 3)

    eventually(passed_over, within_s=WITHIN_S, what="passed over")
    assert "does not want a message with tag sent" in call("why", second).out


def test_a_handler_at_work_has_it_in_its_hands(
    call: Call, topic: str, producer: Producer, broker: AnyBroker, running: ExitStack
) -> None:
    free = threading.Event()
    consumer = PushConsumer(
        f"{topic}-g", broker.namesrv_address, start_from=ConsumeFrom.FIRST, drain_timeout=0.1
    )
    consumer.subscribe(topic, handler=lambda _: free.wait(WITHIN_S))
    running.enter_context(consumer)
    running.callback(free.set)
    sent = producer.send(Message(topic, b"x"))
    until(
        call,
        sent.message_id,
        topic,
        lambda one: of_group(one, f"{topic}-g")["state"] == "in_flight",
    )


@pytest.mark.parametrize(
    ("tries", "state", "kind"), [(5, "retrying", "retry"), (0, "dead", "dead")]
)
def test_what_failed_is_retried_or_dead(
    call: Call,
    topic: str,
    producer: Producer,
    broker: AnyBroker,
    running: ExitStack,
    tries: int,
    state: str,
    kind: str,
) -> None:
    def fail(_: object) -> None:
        raise ValueError("not this one")

    consumer = PushConsumer(
        f"{topic}-g", broker.namesrv_address, start_from=ConsumeFrom.FIRST, max_reconsume=tries
    )
    consumer.subscribe(topic, handler=fail)
    running.enter_context(consumer)
    sent = producer.send(Message(topic, b"x"))
    answer = until(
        call, sent.message_id, topic, lambda one: of_group(one, f"{topic}-g")["state"] == state
    )
    found = of_group(answer, f"{topic}-g")
    assert found["tries"] == 1
    assert kinds(answer) == {"stored", kind}
    assert (found["until"] is None) == (state == "dead")
    (copy,) = [one for one in answer["copies"] if one["kind"] == kind]
    assert (copy["group"], copy["waits"]) == (f"{topic}-g", state == "retrying")


def test_a_delay_and_a_timer_say_until_when(call: Call, topic: str, producer: Producer) -> None:
    slow = producer.send(Message(topic, b"x", delay_level=18))
    answer = until(call, slow.message_id, topic, lambda one: one["found"])
    assert "delayed by level 18 until" in answer["text"]
    (copy,) = answer["copies"]
    assert (copy["kind"], copy["waits"]) == ("delayed", True)
    absent = call("message", "get", slow.message_id, "--topic", topic)
    assert absent.code == 1
    told = shlex.split(absent.err.partition("this finds it: aerobee ")[2])
    assert "delayed by level 18 until" in call(*told).out
    timed = producer.send(Message(topic, b"x", delay=A_MINUTE_S))
    answer = until(call, timed.message_id, topic, lambda one: one["found"])
    assert "waits for its time" in answer["text"]
    # Without its topic it is found as well: it lies where everything lies that waits.
    assert call("why", timed.message_id, "--json").document["topic"] == topic
    producer.recall(topic, timed.recall_handle)
    answer = until(call, timed.message_id, topic, lambda one: "recall" in kinds(one))
    assert answer["text"] == "taken back by its producer before its time: it is not delivered"
    soon = producer.send(Message(topic, b"x", delay_level=1))
    # It is delivered a moment before the broker has noted so.
    answer = until(
        call, soon.message_id, topic, lambda one: "stored" in kinds(one) and not waits(one)
    )
    assert answer["text"].endswith("delivered after its delay")


def ended(state: TransactionState) -> Callable[[Transaction], TransactionState]:
    return lambda _: state


def test_a_transaction_is_open_or_committed_or_rolled_back(
    call: Call, topic: str, broker: AnyBroker
) -> None:
    ends = (TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK)
    with TransactionProducer(
        broker.namesrv_address, group=f"{topic}-p", checker=lambda _: TransactionState.UNKNOWN
    ) as producer:
        sent = [producer.send_in_transaction(Message(topic, b"x"), ended(end)) for end in ends]

    def text(message_id: str, said: str) -> str:
        answer = until(call, message_id, topic, lambda one: said in one["text"])
        return str(answer["text"])

    wanted = ("is open", "was committed", "rolled back")
    texts = [text(one.message_id, said) for one, said in zip(sent, wanted, strict=True)]
    assert f"its producer group {topic}-p was asked 0 times" in texts[0]
    assert texts[1].startswith("stored in ")


def test_a_popped_message_is_invisible_until_it_is_acknowledged(
    call: Call, topic: str, producer: Producer, broker: AnyBroker
) -> None:
    sent = producer.send(Message(topic, b"x"))
    group = f"{topic}-g"
    with PopConsumer(group, broker.namesrv_address, invisible=A_MINUTE_S) as consumer:
        (message,) = consumer.receive(topic, max_messages=1)
        answer = until(
            call, sent.message_id, topic, lambda one: of_group(one, group)["state"] == "invisible"
        )
        assert of_group(answer, group)["until"] is not None
        consumer.ack(message)
        answer = until(
            call, sent.message_id, topic, lambda one: of_group(one, group)["state"] == "passed"
        )
        assert of_group(answer, group)["text"] == "popped and acknowledged"


def test_what_was_traced_is_told(
    call: Call, topic: str, broker: AnyBroker, producer: Producer, running: ExitStack
) -> None:
    consumer = PushConsumer(
        f"{topic}-g", broker.namesrv_address, start_from=ConsumeFrom.FIRST, trace=True
    )
    consumer.subscribe(topic, handler=len)
    sent = producer.send(Message(topic, b"x"))
    with consumer:
        until(call, sent.message_id, topic, lambda one: one["found"])

    def traced(answer: dict[str, Any]) -> bool:
        return {one["kind"] for one in answer["traces"]} == {"Pub", "SubBefore", "SubAfter"}

    answer = until(call, sent.message_id, topic, traced)
    assert not any("no client traced it" in one for one in answer["unknown"])
    done: Done = call("why", sent.message_id, "--topic", topic)
    assert "trace Pub: " in done.out


def test_in_a_namespace_names_are_plain(broker: AnyBroker, topic: str) -> None:
    def fail(_: object) -> None:
        raise ValueError("not this one")

    names, group = broker.namesrv_address, f"{topic}-g"
    with (
        AdminClient(names, namespace="shop") as admin,
        Producer(names, namespace="shop") as producer,
        PushConsumer(
            group, names, namespace="shop", start_from=ConsumeFrom.FIRST, max_reconsume=3
        ) as consumer,
    ):
        admin.create_topic(topic, queues=1)
        consumer.subscribe(topic, handler=fail)
        sent = producer.send(Message(topic, b"x"))

        def retrying() -> bool:
            told = admin.explain_message(sent.message_id)
            assert told.topic in (None, topic)
            return [(one.group, one.state) for one in told.groups] == [(group, GroupState.RETRYING)]

        eventually(retrying, within_s=WITHIN_S, what="it is retried")
        diagnosis = admin.diagnose_group(group)
        assert {one.queue.topic for one in diagnosis.queues} == {topic, f"%RETRY%{group}"}
