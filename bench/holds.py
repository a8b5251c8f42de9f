"""What held pulls, or pops, cost while nothing comes, and how soon a message wakes its pull.

    python -m bench.holds [--pulls 1000] [--seconds 20] [--wakes 1000] [--pops]

A real broker; the pulls wait on queues of their own, a hundred per connection. First the CPU of the
process without any, then with all of them held. Then messages one by one, each to a queue at
random: from before its send until the answer of the pull has been read, both in this process.
Targets: 1 % of a core while idle, 2 ms at the 99th percentile.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from aerobee.remoting.wire.codes import RequestCode
from bench.arguments import positive, program, whole
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import cpu_s
from tests.kit.raw_client import RawConnection, pull_fields, send_fields, topic_fields

SEND, PULL = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE)
POP = int(RequestCode.POP_MESSAGE)
CREATE_TOPIC = int(RequestCode.UPDATE_AND_CREATE_TOPIC)
PER_CONNECTION = 100
HOLD = 2 | 4
HELD_MS = 290_000
GROUP = "holds"


def idle_percent(pid: int, seconds: float) -> float:
    """Share of one core over so many seconds in which nothing is asked."""
    begun, before = time.monotonic(), cpu_s(pid)
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - begun)


def pop_fields(topic: str, queue_id: int) -> dict[str, object]:
    """A pop of one queue that is held."""
    return {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": queue_id,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": HELD_MS,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
    }


class Holds:
    """Connections with a held pull per queue of a topic of their own."""

    def __init__(self, address: str, pulls: int, opened: ExitStack, *, pops: bool) -> None:
        self._pops = pops
        self._producer = opened.enter_context(RawConnection(address))
        self._consumers = []
        for number in range(-(-pulls // PER_CONNECTION)):
            queues = min(PER_CONNECTION, pulls - number * PER_CONNECTION)
            topic = f"held{number}"
            assert self._producer.call(CREATE_TOPIC, topic_fields(topic, queues)).code == 0
            self._consumers.append((opened.enter_context(RawConnection(address)), topic, queues))
        self._offsets: dict[tuple[str, int], int] = {}

    def hold_all(self) -> None:
        """Ask once for each queue."""
        for connection, topic, queues in self._consumers:
            for queue_id in range(queues):
                self._pull(connection, topic, queue_id)
        self._producer.call(int(RequestCode.GET_MAX_OFFSET), {"topic": "held0", "queueId": 0})

    def _pull(self, connection: RawConnection, topic: str, queue_id: int) -> None:
        offset = self._offsets.setdefault((topic, queue_id), 0)
        if self._pops:
            connection.ask(POP, pop_fields(topic, queue_id))
            return
        connection.ask(
            PULL,
            pull_fields(GROUP, topic, queue_id, offset, sysFlag=HOLD, suspendTimeoutMillis=HELD_MS),
        )

    def wake_s(self) -> float:
        """Send to one of the queues; how long until its pull had the message."""
        connection, topic, queues = random.choice(self._consumers)
        queue_id = random.randrange(queues)
        begun = time.perf_counter()
        self._producer.ask(SEND, send_fields(topic, queue_id), b"x" * 128)
        answer = connection.hear()
        took = time.perf_counter() - begun
        assert answer.code == 0, answer
        assert self._producer.hear().code == 0
        self._offsets[topic, queue_id] += 1
        self._pull(connection, topic, queue_id)
        return took


@program
def main() -> None:
    """Print two lines."""
    parser = argparse.ArgumentParser(prog="python -m bench.holds")
    parser.add_argument("--pulls", type=whole, default=1_000)
    parser.add_argument("--seconds", type=positive, default=20)
    parser.add_argument("--wakes", type=whole, default=1_000)
    parser.add_argument("--pops", action="store_true")
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as home, ExitStack() as opened:
        broker = opened.enter_context(BrokerProcess(data=Path(home) / "data"))
        pid = broker.child.pid
        holds = Holds(broker.address, arguments.pulls, opened, pops=arguments.pops)
        without = idle_percent(pid, arguments.seconds)
        holds.hold_all()
        with_them = idle_percent(pid, arguments.seconds)
        print(
            f"idle: {without:.2f} % of a core without pulls, "
            f"{with_them:.2f} % with {arguments.pulls} held"
        )
        wakes = sorted(holds.wake_s() for _ in range(arguments.wakes))
    p50, p99 = (1_000 * wakes[int(len(wakes) * share)] for share in (0.5, 0.99))
    print(f"wake: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {1_000 * wakes[-1]:.2f} ms")


if __name__ == "__main__":
    main()
