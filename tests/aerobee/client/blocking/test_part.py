"""Starts of blocking consumers and producers that the system gives no thread."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from aerobee import ConsumeFrom, Message, TransactionState
from aerobee.blocking import Client, Producer, PushConsumer, TransactionProducer
from tests.conftest import AnyBroker

pytestmark = pytest.mark.service

Fresh = Callable[[str], str]


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pytest.MonkeyPatch]:
    """A function that refuses threads whose name ends so, until its result is undone."""
    start = threading.Thread.start

    def refuse(ending: str) -> pytest.MonkeyPatch:
        def start_if_there_are_any(thread: threading.Thread) -> None:
            if thread.name.endswith(ending):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_there_are_any)
        return monkeypatch

    return refuse


@pytest.mark.parametrize("shared", [False, True])
def test_a_consumer_that_gets_too_few_threads_starts_later(
    broker: AnyBroker, fresh: Fresh, no_thread: Callable[[str], pytest.MonkeyPatch], shared: bool
) -> None:
    topic, group = fresh("topic"), fresh("group")
    with Producer(broker.namesrv_address) as producer:
        producer.send(Message(topic, b"1"))
    handled: SimpleQueue[Any] = SimpleQueue()
    with Client(broker.namesrv_address) as client:
        place: dict[str, Any] = (
            {"client": client} if shared else {"namesrv": broker.namesrv_address}
        )
        consumer = PushConsumer(group, start_from=ConsumeFrom.FIRST, **place)
        consumer.subscribe(topic, handler=lambda messages: handled.put(messages[0].body))
        patch = no_thread(f"{group} 3")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            consumer.start()
        left = [each for each in threading.enumerate() if each.name.startswith(f"{group} ")]
        for worker in left:
            worker.join(10)
        assert not any(worker.is_alive() for worker in left)
        patch.undo()
        with consumer:
            assert handled.get(timeout=30) == b"1"


def test_a_transaction_producer_without_a_thread_starts_later(
    broker: AnyBroker, fresh: Fresh, no_thread: Callable[[str], pytest.MonkeyPatch]
) -> None:
    topic = fresh("topic")

    def check(message: object) -> TransactionState:
        return TransactionState.COMMIT

    producer = TransactionProducer(broker.namesrv_address, group=fresh("group"), checker=check)
    patch = no_thread("transaction checks")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        producer.start()
    patch.undo()
    with producer, producer.transaction(Message(topic, b"1")) as transaction:
        assert transaction.result.ok
