"""One restart of the broker under the official clients of every language at once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import MessageType
from aerobee.blocking import AdminClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST, free_port
from tests.kit.python5_driver import Python5, SdkError
from tests.kit.rounds import LANGUAGES, Round
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop

COUNT = 3
BEFORE = [f"body-{number}" for number in range(COUNT)]
AROUND = [f"around-{number}" for number in range(5)]
"""Sent while the broker restarts: before it is down, or when it is there again."""
AFTER = "after"
WITHIN_S = 90.0


class Python:
    """A producer and a push consumer of the official Python client."""

    def __init__(self, home: Path, endpoints: str) -> None:
        self.sdk = Python5(home, endpoints)

    def start(self) -> None:
        self.sdk.start("producer", "producer", topics=["python"])
        self.sdk.start("push", "push", group="python-push", topics=["python"])

    def send(self, body: str) -> None:
        def sent() -> bool:
            try:
                self.sdk.call("send", name="producer", topic="python", body=body)
            except SdkError:
                return False
            return True

        eventually(sent, within_s=WITHIN_S, what=f"the send of {body}")

    def until_all(self, bodies: list[str]) -> None:
        def pushed() -> bool:
            return {got["body"] for got in self.sdk.call("got", name="push")} >= set(bodies)

        eventually(pushed, within_s=WITHIN_S, what="the messages")


def test_all_go_on_and_nothing_that_was_sent_is_lost(tmp_path: Path) -> None:
    port = free_port()
    endpoints = f"{HOST}:{port}"
    with (
        BrokerProcess(data=tmp_path / "data", settings={"grpcPort": port}) as broker,
        ExitStack() as running,
    ):
        with AdminClient(broker.namesrv_address) as admin:
            for topic in (*LANGUAGES, "python"):
                admin.create_topic(topic, queues=2, message_type=MessageType.NORMAL)
        python = Python(tmp_path, endpoints)
        running.enter_context(python.sdk.child)
        python.start()
        rounds = [Round(name, tmp_path, endpoints, name, COUNT) for name in LANGUAGES]
        for each in rounds:
            running.enter_context(each.child)
        for body in BEFORE:
            python.send(body)
        for each in rounds:
            each.until_ready()

        for body in AROUND:
            for each in rounds:
                each.send(body)
        broker.restart()
        for each in rounds:
            each.send(AFTER)
        for body in (*AROUND, AFTER):
            python.send(body)

        sent = [*BEFORE, *AROUND, AFTER]
        for each in rounds:
            each.until_all([*AROUND, AFTER], "sent")
            each.until_all(sent, "received")
            each.until_all(sent, "pushed")
        python.until_all(sent)
        for each in rounds:
            each.end()
