"""Timers and delays: very many in one second while producers send, and very many that wait.

`burst`: so many timers for the same second; how long until all are delivered, and what a closed
loop of producers keeps of its rate meanwhile. `delays`: the same for messages of one delay level
that became due while the broker was down. `waiting`: so many timers over 39 days; how long until
the wheel has them, and what the broker's memory is then. The producers are `bench/rawload`.

    python -m bench.timers [--burst 100000] [--delays 100000] [--waiting 1000000]
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench.arguments import program, whole_or_0
from bench.load import BINARY, DEFAULT_SIZES, build
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess, MiB
from tests.kit.health import rss_anon
from tests.kit.raw_client import RawConnection, properties_text, request_frame, send_fields
from tests.kit.reading import max_offset

SEND_MESSAGE_V2 = 310
TOPIC = "timed"
WHEEL_TOPIC = "rmq_sys_wheel_timer"
BODY = b"x" * 128
WINDOW = 256
"""Sends in flight."""
SEED = 1
LOAD_S, SHORT_LOAD_S = 6.0, 4.0
"""The short one begins and ends while delays are delivered."""
DELAY_S = 20
DELAYED = DEFAULT_SIZES | {"messageDelayLevel": f"{DELAY_S}s"}
RATE = re.compile(r"msgs/s=([\d.]+)")


def send_timers(address: str, times_ms: list[int]) -> float:
    """Send a timer for each of these times over one connection; seconds that it took."""
    return send_all(address, [{"TIMER_DELIVER_MS": str(time_ms)} for time_ms in times_ms])


def send_all(address: str, messages: list[dict[str, str]]) -> float:
    """Send a message with each of these properties; seconds that it took."""
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port))) as connection:
        for begin in range(0, len(messages), WINDOW):
            part = messages[begin : begin + WINDOW]
            connection.sendall(b"".join(map(frame_of, part)))
            read_frames(connection, len(part))
    return time.monotonic() - began


def frame_of(properties: dict[str, str]) -> bytes:
    """One send."""
    fields = send_fields(TOPIC, 0, i=properties_text(**properties))
    return request_frame(SEND_MESSAGE_V2, 1, fields, BODY)


def read_frames(connection: socket.socket, count: int) -> None:
    """So many answers. Raises: SystemExit for anything but a success."""
    data = b""
    while count:
        data += connection.recv(1 << 20)
        while len(data) >= 4 and len(data) >= 4 + struct.unpack_from(">i", data)[0]:
            size = 4 + struct.unpack_from(">i", data)[0]
            if b'"code":0' not in data[:size]:
                raise SystemExit(data[:size].decode("utf-8", "replace"))
            data = data[size:]
            count -= 1


def produce(broker: BrokerProcess, seconds: float = LOAD_S) -> float:
    """Messages per second of 64 producers that wait for each answer."""
    times = ("-W", "0.5", "-T", str(seconds))
    command = [str(BINARY), "-a", broker.address, "-m", "produce", "-c", "64", "-d", "1", *times]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = RATE.search(done.stdout)
    if found is None:
        raise SystemExit(done.stdout)
    return float(found[1])


class Delivered(NamedTuple):
    """The time of one burst, and what producers kept of their rate meanwhile."""

    late_s: float
    rate: float = 0.0
    alone: float = 0.0

    @property
    def words(self) -> str:
        """The end of a line."""
        if not self.alone:
            return f"all delivered within {self.late_s:.2f} s, no other load"
        return (
            f"all delivered within {self.late_s:.2f} s; producers {self.rate:,.0f}/s meanwhile,"
            f" {self.alone:,.0f} alone: {self.rate / self.alone:.0%}"
        )


class Beside:
    """Producers in a thread, for as long as they were told."""

    def __init__(self, broker: BrokerProcess, seconds: float) -> None:
        self.rates: list[float] = []
        self.thread = threading.Thread(target=lambda: self.rates.append(produce(broker, seconds)))

    def rate(self) -> float:
        """The rate of the producers; waits for their end. Raises: IndexError when they failed."""
        self.thread.join()
        return self.rates[0]


def burst(broker: BrokerProcess, count: int, *, beside: bool) -> Delivered:
    """So many timers for one second; `late_s` runs from that second."""
    alone = produce(broker) if beside else 0.0
    with RawConnection(broker.address) as connection:
        assert connection.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0), BODY).code == 0
        before = max_offset(connection, TOPIC, 0)
        due_s = int(time.time() + count / 8_000) + 10
        send_timers(broker.address, [due_s * 1000] * count)
        time.sleep(max(0.0, due_s - time.time() - 1))
        load = Beside(broker, LOAD_S)
        if beside:
            load.thread.start()
        while max_offset(connection, TOPIC, 0) < before + count:
            time.sleep(0.1)
        late_s = time.time() - due_s
    return Delivered(late_s, load.rate(), alone) if beside else Delivered(late_s)


def delays(broker: BrokerProcess, count: int, *, beside: bool) -> Delivered:
    """So many of one delay level, all due when the broker starts; from the first that comes."""
    alone = produce(broker) if beside else 0.0
    with RawConnection(broker.address) as connection:
        assert connection.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0), BODY).code == 0
        before = max_offset(connection, TOPIC, 0)
    send_all(broker.address, [{"DELAY": "1"}] * count)
    due_s = time.monotonic() + DELAY_S
    broker.stop()
    time.sleep(max(0.0, due_s - time.monotonic()))
    broker.start()
    load = Beside(broker, SHORT_LOAD_S)
    with RawConnection(broker.address) as connection:
        while max_offset(connection, TOPIC, 0) == before:
            time.sleep(0.01)
        began = time.monotonic()
        if beside:
            load.thread.start()
        while max_offset(connection, TOPIC, 0) < before + count:
            time.sleep(0.1)
        late_s = time.monotonic() - began
    return Delivered(late_s, load.rate(), alone) if beside else Delivered(late_s)


def waiting(count: int, folder: str) -> None:
    """Very many timers that wait."""
    rng = random.Random(SEED)
    with BrokerProcess(data=Path(folder) / "waiting", settings=DEFAULT_SIZES) as broker:
        pid = broker.child.pid
        before = rss_anon(pid) / MiB
        now_ms = int(time.time() * 1000)
        times = [now_ms + rng.randrange(3_600_000, 39 * 86_400_000) for _ in range(count)]
        sent_s = send_timers(broker.address, times)
        time.sleep(3)
        print(
            f"{count:,} timers over 39 days sent in {sent_s:.0f} s: "
            f"{before:.0f} MiB before, {rss_anon(pid) / MiB:.0f} MiB with all of them"
        )
        broker.stop()
        broker.start()
        assert broker.ready is not None
        ready = broker.ready
        memory = rss_anon(broker.child.pid) / MiB
        print(f"ready again ({ready.recovered}) in {ready.elapsed_s} s, {memory:.0f} MiB")


@program
def main() -> None:
    """All three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=whole_or_0, default=100_000)
    parser.add_argument("--delays", type=whole_or_0, default=100_000)
    parser.add_argument("--waiting", type=whole_or_0, default=1_000_000)
    given = parser.parse_args()
    build()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        both = (("timers", burst, given.burst), ("delays", delays, given.delays))
        for name, deliver, count in both:
            if count:
                with BrokerProcess(data=Path(folder) / name, settings=DELAYED) as broker:
                    produce(broker)
                    for beside in (False, True):
                        seen = deliver(broker, count, beside=beside)
                        print(f"{count:,} {name} due at once, {seen.words}", flush=True)
        if given.waiting:
            waiting(given.waiting, folder)


if __name__ == "__main__":
    main()
