"""R15: a broker that may open 74 files, and a crowd that would take them all.

Whoever is connected goes on; the broker does not spin; those outside come in as soon as there is a
place.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.health import cpu_s, open_descriptors, slowness
from tests.kit.odd_broker import few_files
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed, RawConnection, send_fields

if TYPE_CHECKING:
    from tests.kit.campaign import Run

FILES = 64 + 10
SEND = 310
CROWD = 120
"""More than there are places for, and fewer than the listener's backlog takes."""
CLIENTS = 4
SENDS = 200
IDLE_S = 2.0
CPU_MAX = 0.05
IN_WITHIN_S = 1.0
"""For the first answer to one who was outside."""


def few_descriptors(run: Run) -> None:
    """Crowds that come and go on one broker."""
    data = run.directory / "data"
    with (
        BrokerProcess(data=data, module=few_files(FILES)) as broker,
        ExitStack() as stack,
    ):
        clients = [
            stack.enter_context(RawConnection(broker.address, timeout_s=10)) for _ in range(CLIENTS)
        ]
        work(clients)
        calm = open_descriptors(broker.child.pid).total()
        for _ in run.cycles():
            crowd = [connected(broker) for _ in range(CROWD)]
            work(clients)
            # Each of the crowd comes in once, in the place of the one that was silent for longest.
            broker.let_run(IDLE_S)
            began = cpu_s(broker.child.pid)
            broker.let_run(IDLE_S)
            share = (cpu_s(broker.child.pid) - began) / IDLE_S
            run.worst("descriptors", open_descriptors(broker.child.pid).total())
            run.worst("CPU % with a crowd outside", round(100 * share))
            assert share < CPU_MAX * slowness(), f"{share:.0%} of a core for nothing"
            work(clients)
            for one in crowd:
                one.close()
            waited = first_answer_s(broker)
            run.worst("ms until one comes in", round(waited * 1_000))
            assert waited <= IN_WITHIN_S, f"{waited:.2f} s"
            work(clients)
            run.counts["connections"] += CROWD
            run.counts["sends"] += 3 * CLIENTS * SENDS
        broker.let_run(1.0)
        left = open_descriptors(broker.child.pid).total()
        assert left <= calm + 2, f"{left} descriptors, {calm} before"
        run.counts["descriptors left"] = left - calm


def connected(broker: BrokerProcess) -> socket.socket:
    """One who says nothing."""
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((HOST, broker.ports.listen))
    return one


def work(clients: list[RawConnection]) -> None:
    """What those who are connected do as always."""
    for number in range(SENDS):
        for client in clients:
            answer = client.call(SEND, send_fields("inside", number % 4), b"as always")
            assert answer.code == 0, answer


def first_answer_s(broker: BrokerProcess) -> float:
    """How long somebody new needs for a send; a place may come free while it tries."""
    began = time.monotonic()
    while time.monotonic() - began < 10 * IN_WITHIN_S:
        try:
            with RawConnection(broker.address, timeout_s=10) as newcomer:
                assert newcomer.call(SEND, send_fields("inside", 0), b"new").code == 0
                break
        except (Closed, OSError):
            broker.let_run(0.01)
    return time.monotonic() - began


R15 = Campaign(
    key="R15",
    title="74 descriptors, and a crowd that would take them all",
    unit="crowds",
    t1=1,
    t2=50,
    run=few_descriptors,
)
