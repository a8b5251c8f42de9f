"""Runs beside the official Python client (`tests/kit/python_client.py`): one feature each.

    member.py ENDPOINTS FEATURE [ACCESS_KEY SECRET]

Prints one JSON line for each thing that happened, and `end`.
"""

import json
import os
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WITHIN_S = 60.0
STOP_WITHIN_S = 15.0
ENDPOINTS, FEATURE, *ACCOUNT = sys.argv[1:]
CONFIG = ClientConfiguration(ENDPOINTS, Credentials(*ACCOUNT))


def tell(*what):
    """One write for a line: listeners run in threads."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def message(topic, body, **fields):
    made = Message()
    made.topic, made.body = topic, body
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def until(listener, done):
    end = time.monotonic() + WITHIN_S
    while not done() and time.monotonic() < end:
        listener.more.wait(end - time.monotonic())
        listener.more.clear()
    tell("in time", bool(done()))


class Listener(MessageListener):
    def __init__(self, fail=0):
        self.more = threading.Event()
        self.seen = []
        self.fail = fail

    def consume(self, got):
        tell("got", got.body.decode(), got.delivery_attempt)
        failed = got.delivery_attempt <= self.fail
        if not failed:
            self.seen.append(got)
            self.more.set()
        return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def check(self, half):
        tell("check", half.body.decode())
        return TransactionResolution.COMMIT


def started(client):
    client.startup()
    return client


def stop(*clients):
    """Stop them. The shutdown of 5.0.9 may never end on a busy machine: not waited for then."""

    def shut_down():
        for client in clients:
            client.shutdown()

    thread = threading.Thread(target=shut_down, daemon=True)
    thread.start()
    thread.join(STOP_WITHIN_S)


def simple():
    """Send, receive with a tag, leave one alone until it comes again, acknowledge."""
    producer = started(Producer(CONFIG, ("Normal",)))
    for number in range(3):
        one = message("Normal", b"body-%d" % number, tag="a", keys=f"key-{number}")
        one.add_property("colour", "red")
        tell("sent", bool(producer.send(one).message_id))
    producer.send(message("Normal", b"other", tag="b"))
    consumer = started(SimpleConsumer(CONFIG, "simple", {"Normal": FilterExpression("a")}, 5))
    got = {}
    end = time.monotonic() + WITHIN_S
    while len(got) < 3 and time.monotonic() < end:
        for one in consumer.receive(8, 30) or []:
            tell("got", one.body.decode(), one.tag, sorted(one.keys), one.properties)
            got[one.body] = one
            consumer.ack(one)
    tell("in time", len(got) == 3)
    stop(consumer, producer)


def push():
    """A push consumer gets everything, and again what it refused."""
    listener = Listener(fail=1)
    consumer = started(PushConsumer(CONFIG, "push", listener, {"Normal": FilterExpression()}))
    producer = started(Producer(CONFIG, ("Normal",)))
    producer.send(message("Normal", b"twice"))
    until(listener, lambda: any(got.body == b"twice" for got in listener.seen))
    stop(consumer, producer)


def fifo():
    """Messages of one group come in their order."""
    producer = started(Producer(CONFIG, ("Fifo",)))
    for number in range(5):
        producer.send(message("Fifo", b"%d" % number, message_group="order-1"))
    listener = Listener()
    consumer = started(PushConsumer(CONFIG, "fifo", listener, {"Fifo": FilterExpression()}))
    until(listener, lambda: len(listener.seen) == 5)
    stop(consumer, producer)


def delay():
    """A message comes at its time, one that was recalled does not."""
    producer = started(Producer(CONFIG, ("Delay",)))
    listener = Listener()
    consumer = started(PushConsumer(CONFIG, "delay", listener, {"Delay": FilterExpression()}))
    due = int(time.time()) + 3
    producer.send(message("Delay", b"late", delivery_timestamp=due))
    receipt = producer.send(message("Delay", b"recalled", delivery_timestamp=due))
    tell("recalled", bool(producer.recall_message("Delay", receipt.recall_handle)))
    until(listener, lambda: bool(listener.seen))
    tell("not before", time.time() >= due)
    stop(consumer, producer)


def transactions():
    """Commit, rollback, and the question about one that was left open."""
    producer = started(Producer(CONFIG, ("Transaction",), checker=Checker()))
    listener = Listener()
    subscribed = {"Transaction": FilterExpression()}
    consumer = started(PushConsumer(CONFIG, "transactions", listener, subscribed))
    for body, end in ((b"commit", "commit"), (b"rollback", "rollback"), (b"open", "")):
        transaction = producer.begin_transaction()
        producer.send(message("Transaction", body), transaction)
        if end:
            getattr(transaction, end)()
    until(listener, lambda: len(listener.seen) == 2)
    stop(consumer, producer)


def account():
    """One send, or why it is refused."""
    producer = Producer(CONFIG, ("Normal",))
    try:
        producer.startup()
        tell("sent", bool(producer.send(message("Normal", b"signed")).message_id))
        stop(producer)
    except Exception as error:
        tell("refused", str(error))


globals()[FEATURE]()
tell("end")
# Threads that a shutdown has left would keep the process.
os._exit(0)
