"""Kills under load where one configuration runs several brokers: of one, of all, of the supervisor.

Producers of the SDK send on over everything; whatever was acknowledged to them must be there when
all brokers serve again, and a broker that nobody touched must have gone on serving.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from aerobee.blocking import AdminClient, Message, Producer
from aerobee.errors import AerobeeError
from tests.kit.campaign import Campaign
from tests.kit.supervised import Supervised
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.campaign import Cycle, Run

PRODUCERS = 2
READY_S = 40.0
SENT_S = (0.2, 0.8)
"""How long is sent before something happens, and after."""
SETTINGS: dict[str, object] = {"lameDuckGraceSeconds": 0, "lameDuckSpreadSeconds": 0}


class Load:
    """Producers that send until they are told to end, and what was acknowledged to them."""

    def __init__(self, whole: Supervised, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.failed = 0
        self.topic = topic
        self._whole = whole
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number,)) for number in range(PRODUCERS)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, number: int) -> None:
        group, count = f"{self.topic}-{number}", 0
        names = self._whole.namesrv_address
        with Producer(names, group=group, request_timeout=0.5) as producer:
            while not self._over.is_set():
                count += 1
                body = f"{group}-{count}".encode()
                try:
                    producer.send(Message(self.topic, body))
                except AerobeeError:
                    self.failed += 1
                    self._over.wait(0.02)
                else:
                    self.acknowledged.add(body)


def one(whole: Supervised, cycle: Cycle) -> None:
    """Kill one broker; the other keeps its process."""
    before = whole.pids()
    name = cycle.rng.choice(sorted(before))
    os.kill(before[name], signal.SIGKILL)
    eventually(
        lambda: whole.pids().get(name) not in (None, before[name]),
        within_s=READY_S,
        what=f"{name} is started again",
    )
    after = whole.pids()
    assert {other: pid for other, pid in before.items() if other != name}.items() <= after.items()


def every(whole: Supervised, cycle: Cycle) -> None:
    """Kill all brokers."""
    for pid in whole.pids().values():
        os.kill(pid, signal.SIGKILL)


def supervisor(whole: Supervised, cycle: Cycle) -> None:
    """Kill the supervisor; the brokers end by themselves, and the next start waits for them."""
    whole.kill()
    whole.start()


def stop(whole: Supervised, cycle: Cycle) -> None:
    """Stop and start the whole."""
    whole.restart()


def renew(whole: Supervised, cycle: Cycle) -> None:
    """Restart the brokers one by one."""
    before = whole.pids()
    os.kill(whole.child.pid, signal.SIGRTMIN)
    eventually(
        lambda: not set(whole.pids().values()) & set(before.values()),
        within_s=READY_S,
        what="every broker has been restarted",
    )


KINDS: tuple[Callable[[Supervised, Cycle], None], ...] = (one, renew, supervisor, every, stop)


def kills(run: Run) -> None:
    """K1: something ends under load, and everything acknowledged is there again."""
    whole = Supervised(data=run.directory / "data", settings=SETTINGS)
    with whole:
        for cycle in run.cycles():
            kind = KINDS[cycle.number % len(KINDS)]
            topic = f"kills-{cycle.number}"
            with AdminClient(whole.namesrv_address) as admin:
                admin.create_topic(topic, queues=4)
            with Load(whole, topic) as load:
                whole.let_run(cycle.rng.uniform(*SENT_S))
                began = time.monotonic()
                kind(whole, cycle)
                eventually(
                    lambda: whole.health()["code"] == 200, within_s=READY_S, what="all are ready"
                )
                run.worst("slowest return ms", round((time.monotonic() - began) * 1_000))
                whole.let_run(cycle.rng.uniform(*SENT_S))
            with AdminClient(whole.namesrv_address) as admin:
                there = {
                    bytes(message.body)
                    for message in admin.find_messages(topic, max_messages=1_000_000)
                }
            lost = load.acknowledged - there
            run.counts["acknowledged"] += len(load.acknowledged)
            run.counts["sends that failed"] += load.failed
            run.counts[kind.__name__] += 1
            run.counts["lost"] += len(lost)
            assert not lost, sorted(lost)[:5]
        assert whole.stop() == 0


K1 = Campaign(
    key="K1",
    title="several brokers of one configuration: kills of one, of all, of the supervisor; restarts",
    unit="kills and restarts",
    t1=3,
    t2=200,
    run=kills,
)
