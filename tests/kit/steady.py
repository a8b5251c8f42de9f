"""Steady clients in threads: producers that note how long each send took, a reader of the past.

As a program, `python -m tests.kit.steady TOPIC PAUSE_S ADDRESS…`, it is a producer for each address
in a process of its own, which goes on until its stdin ends: `ProducersApart`.
"""

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.kit.raw_client import RawConnection, pull_fields, records, send_fields

SEND_MESSAGE_V2, PULL_MESSAGE = 310, 11
FOUND, RETRY = 0, 20
WINDOW = 64


def fill(address: str, topic: str, *, size_bytes: int, body_bytes: int) -> int:
    """So many bytes of bodies into queue 0 of a topic; the number of messages."""
    count = size_bytes // body_bytes
    with RawConnection(address) as connection:
        for number in range(count + WINDOW):
            if number < count:
                connection.ask(SEND_MESSAGE_V2, send_fields(topic, 0), bytes(body_bytes))
            if number >= WINDOW:
                assert connection.hear().code == 0
    return count


def p99_ms(latencies_ms: list[float]) -> float:
    """The 99th percentile."""
    assert latencies_ms, "nothing was sent"
    return sorted(latencies_ms)[int(len(latencies_ms) * 0.99)]


class _Threads:
    """Threads that work until the block ends; what one fails with is raised there."""

    def __init__(self, count: int) -> None:
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]

    def work(self) -> None:
        """What each thread does."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(timeout=30)
        if self.failures and kind is None:
            raise self.failures[0]


class Producers(_Threads):
    """Producers that send one message after the other, with a pause between them."""

    def __init__(
        self, address: str, topic: str, *, count: int = 2, body_bytes: int, pause_s: float
    ) -> None:
        super().__init__(count)
        self.address = address
        self.topic = topic
        self.body = bytes(body_bytes)
        self.pause_s = pause_s
        self.latencies_ms: list[float] = []
        self.began: list[float] = []
        """When each of them began, by the monotonic clock, which all processes share."""

    def work(self) -> None:
        with RawConnection(self.address, timeout_s=30) as connection:
            while not self.over.wait(self.pause_s):
                began = time.monotonic()
                answer = connection.call(SEND_MESSAGE_V2, send_fields(self.topic, 0), self.body)
                self.latencies_ms.append((time.monotonic() - began) * 1_000)
                self.began.append(began)
                assert answer.code == 0, answer


class ProducersApart:
    """A producer for each address, in a process of their own: no work of this process delays them.

    `between` gives the latencies, in ms, of the sends that began between two times of the monotonic
    clock; it is for after the block.
    """

    def __init__(self, addresses: list[str], topic: str, *, pause_s: float) -> None:
        command = [sys.executable, "-m", "tests.kit.steady", topic, str(pause_s), *addresses]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._sends: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "sending\n", "it has failed on stderr"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        said, _ = self._process.communicate("", timeout=60)
        if kind is None:
            assert self._process.returncode == 0, "it has failed on stderr"
            self._sends = [(began, took_ms) for began, took_ms in json.loads(said)]

    def between(self, begin: float, end: float) -> list[float]:
        """Latencies, in ms."""
        return [took_ms for began, took_ms in self._sends if begin <= began < end]


class Past(_Threads):
    """One consumer that reads queue 0 of a topic from its begin, again and again if it must."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(1)
        self.address = address
        self.topic = topic
        self.messages = 0
        self.bytes = 0
        self.slowest_ms = 0.0
        self.at = 0

    def work(self) -> None:
        with RawConnection(self.address, timeout_s=60) as connection:
            while not self.over.is_set():
                fields = pull_fields("past", self.topic, 0, self.at, suspendTimeoutMillis=0)
                began = time.perf_counter()
                answer = connection.call(PULL_MESSAGE, fields)
                self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - began) * 1_000)
                if answer.code != FOUND:
                    self.at = int(answer.ext["minOffset"])
                    continue
                for record in records(answer.body):
                    # What is deleted under the reader is passed over.
                    assert record.queue_offset >= self.at, (record.queue_offset, self.at)
                    self.at = record.queue_offset + 1
                    self.messages += 1
                self.bytes += len(answer.body)


def main(topic: str, pause_s: str, *addresses: str) -> None:
    """Send until stdin ends, then print when each send began and how long it took."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                Producers(one, topic, count=1, body_bytes=100, pause_s=float(pause_s))
            )
            for one in addresses
        ]
        print("sending", flush=True)
        sys.stdin.read()
    sends = [pair for one in clients for pair in zip(one.began, one.latencies_ms, strict=True)]
    print(json.dumps(sends))


if __name__ == "__main__":
    main(*sys.argv[1:])
