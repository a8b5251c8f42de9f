"""Brokers that are restarted one after the other as lame ducks: clients do not notice.

Real processes and the SDK's clients with their own retries: no send fails, no message is lost.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from aerobee import ConsumeFrom, Message
from aerobee.blocking import AdminClient, Producer, PushConsumer, ReceivedMessage
from tests.kit.broker_process import BrokerProcess
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

TOPIC = "Rolled"
GRACE_S, SPREAD_S = 1, 1
LEAVES_WITHIN_S = 15.0
QUICK: dict[str, object] = {
    "embeddedNamesrv": False,
    "lameDuckGraceSeconds": GRACE_S,
    "lameDuckSpreadSeconds": SPREAD_S,
}


class Work:
    """A thread that sends one message after the other, and what became of them."""

    def __init__(self, namesrv: str) -> None:
        self.acked: list[bytes] = []
        self.brokers: Counter[str] = Counter()
        self.failed: list[Exception] = []
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Work:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_sends(self, count: int) -> None:
        """Until so many more have been acknowledged."""
        enough = len(self.acked) + count
        eventually(lambda: len(self.acked) >= enough, within_s=30.0, what="sends that go on")

    def _send(self) -> None:
        with Producer(self._namesrv, group="rolling") as producer:
            number = 0
            while not self._stop.wait(0.001):
                body = b"%d" % number
                number += 1
                try:
                    sent = producer.send(Message(TOPIC, body))
                except Exception as error:
                    self.failed.append(error)
                else:
                    self.acked.append(body)
                    self.brokers[sent.queue.broker_name] += 1


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as running:
        names = running.enter_context(NamesrvProcess(data=tmp_path / "names"))
        yield [
            running.enter_context(
                BrokerProcess(
                    data=tmp_path / name,
                    namesrv=names.address,
                    settings={**QUICK, "brokerName": name},
                )
            )
            for name in ("broker-a", "broker-b")
        ]


def test_a_rolling_restart_loses_nothing_and_fails_no_send(brokers: list[BrokerProcess]) -> None:
    namesrv = brokers[0].namesrv
    assert namesrv is not None
    with AdminClient(namesrv) as admin:
        admin.create_topic(TOPIC, queues=4)
    read: set[bytes] = set()
    # So that it comes back to a broker within a second, and not within half a minute.
    consumer = PushConsumer("rolling", namesrv, start_from=ConsumeFrom.FIRST, route_interval=1.0)

    @consumer.subscribe(TOPIC)
    def note(messages: Sequence[ReceivedMessage]) -> None:
        read.update(message.body for message in messages)

    with consumer:
        with Work(namesrv) as work:
            for broker in brokers:
                work.wait_for_sends(100)
                leave(broker)
                work.wait_for_sends(100)
                assert broker.start().recovered == "clean"
            work.wait_for_sends(100)
        assert work.failed == []
        acked = set(work.acked)
        eventually(lambda: acked <= read, within_s=30.0, what="every message that was sent")
    assert set(work.brokers) == {"broker-a", "broker-b"}


def leave(broker: BrokerProcess) -> None:
    """Have it go as a lame duck; it ends by itself, cleanly."""
    broker.child.signal(signal.SIGUSR2)
    assert broker.child.wait(within_s=LEAVES_WITHIN_S) == 0, broker.child.errors()
    assert '"event": "broker.lame_duck"' in broker.child.errors()
    assert not (broker.data / "abort").exists()
