"""Clients of the official Python SDK behind a pipe: a JSON object a line, and one back.

It runs in the environment of that SDK, and knows nothing of ours. `do` names the function below;
what the SDK raises comes back as `error`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

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

clients: dict[str, Any] = {}
received: dict[str, dict[str, Message]] = {}
"""Client → the messages that it has and has not settled, by their message id."""
pushed: dict[str, list[dict[str, Any]]] = {}
checked: list[str] = []
lock = threading.Lock()


def configuration(endpoints: str, user: str = "", secret: str = "") -> ClientConfiguration:
    return ClientConfiguration(endpoints, Credentials(user, secret))


def told(message: Message) -> dict[str, Any]:
    return {
        "body": message.body.decode(),
        "topic": message.topic,
        "id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
        "priority": message.priority,
        "corrupted": message.corrupted,
        "at_ms": int(time.time() * 1000),
    }


class Checker(TransactionChecker):  # type: ignore[misc]  # the SDK has no types
    """Commits what it is asked about, once it was told to."""

    def check(self, message: Message) -> Any:
        checked.append(message.body.decode())
        return TransactionResolution.COMMIT


class Listener(MessageListener):  # type: ignore[misc]  # the SDK has no types
    """Fails each message whose body begins with "fail" until its attempt of the given number."""

    def __init__(self, name: str, succeeds_at: int) -> None:
        self.name = name
        self.succeeds_at = succeeds_at

    def consume(self, message: Message) -> Any:
        with lock:
            pushed[self.name].append(told(message))
        fails = message.body.startswith(b"fail") and message.delivery_attempt < self.succeeds_at
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def producer(name: str, topics: list[str], checks: bool = False, **connection: str) -> None:
    checker = Checker() if checks else None
    clients[name] = Producer(configuration(**connection), topics, checker=checker)
    clients[name].startup()


def send(
    name: str,
    topic: str,
    body: str,
    tag: str | None = None,
    keys: list[str] | None = None,
    properties: dict[str, str] | None = None,
    group: str | None = None,
    at_ms: int | None = None,
    priority: int | None = None,
    transaction: str | None = None,
) -> dict[str, Any]:
    message = Message()
    message.topic = topic
    message.body = body.encode()
    if tag:
        message.tag = tag
    if keys:
        for key in keys or ():
            message.keys = key  # it adds one
    for each in (properties or {}).items():
        message.add_property(*each)
    if group:
        message.message_group = group
    if at_ms:
        message.delivery_timestamp = at_ms // 1000
    if priority is not None:
        message.priority = priority
    if transaction is None:
        receipt = clients[name].send(message)
    else:
        begun = clients[name].begin_transaction()
        receipt = clients[name].send(message, begun)
        if transaction == "commit":
            begun.commit()
        elif transaction == "rollback":
            begun.rollback()
    return {
        "id": receipt.message_id,
        "offset": receipt.offset,
        "handle": receipt.recall_handle,
    }


def recall(name: str, topic: str, handle: str) -> str:
    return str(clients[name].recall_message(topic, handle))


def checks() -> list[str]:
    return list(checked)


def simple(
    name: str,
    group: str,
    topics: list[str],
    expression: str = "*",
    await_s: int = 5,
    **connection: str,
) -> None:
    subscription = {topic: FilterExpression(expression) for topic in topics}
    clients[name] = SimpleConsumer(configuration(**connection), group, subscription, await_s)
    clients[name].startup()
    received[name] = {}


def receive(name: str, count: int = 32, invisible_s: int = 15) -> list[dict[str, Any]]:
    messages = clients[name].receive(count, invisible_s) or []
    received[name].update({message.message_id: message for message in messages})
    return [told(message) for message in messages]


def ack(name: str, message_id: str) -> None:
    clients[name].ack(received[name].pop(message_id))


def change(name: str, message_id: str, invisible_s: int) -> None:
    clients[name].change_invisible_duration(received[name][message_id], invisible_s)


def push(
    name: str,
    group: str,
    topics: list[str],
    expression: str = "*",
    succeeds_at: int = 1,
    **connection: str,
) -> None:
    subscription = {topic: FilterExpression(expression) for topic in topics}
    pushed[name] = []
    listener = Listener(name, succeeds_at)
    clients[name] = PushConsumer(configuration(**connection), group, listener, subscription)
    clients[name].startup()


def got(name: str) -> list[dict[str, Any]]:
    with lock:
        return list(pushed[name])


def close(name: str) -> None:
    clients.pop(name).shutdown()


VERBS = (producer, send, recall, checks, simple, receive, ack, change, push, got, close)
BY_NAME: dict[str, Any] = {verb.__name__: verb for verb in VERBS}

print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"answer": BY_NAME[asked.pop("do")](**asked)}
    except Exception as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer), flush=True)
