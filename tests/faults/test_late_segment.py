"""The log rolls faster than the disk makes segments: sends wait for it, and nobody else does."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.kit.odd_broker import ODD_BROKER, allocating_for
from tests.kit.raw_client import (
    Closed,
    RawAnswer,
    RawConnection,
    batch_body,
    pull_fields,
    send_fields,
)
from tests.kit.stall_watch import WatchedBroker

MiB = 1_048_576
ALLOCATION_MS = 1_000
STALL_MS = 50.0
PULLS = 20
"""Fewer pulls than are answered while sends wait; a pull that waited as they do would be one for
each late segment.
"""
ATTEMPTS = 3
"""Machines stand still by themselves; what we do wrong would be there each time."""
BODY = bytes(50_000)
SENDS = 2 * MiB // len(BODY)
"""On each of two connections, into a log of segments of 2 MiB: it rolls twice at least."""
SEND, PULL, BATCH = 310, 11, 320
ONE_PULL = pull_fields("g", "BenchmarkTest", 0, 0, sysFlag=0)


def slow_broker(directory: Path) -> WatchedBroker:
    directory.mkdir()
    return WatchedBroker(
        data=directory / "data",
        settings={"mappedFileSizeCommitLog": 2 * MiB},
        env={ODD_BROKER: allocating_for(ALLOCATION_MS)},
    )


def ask_all(connection: RawConnection, queue_id: int) -> None:
    """Many sends without waiting for their answers; the last is a batch."""
    for _ in range(SENDS - 1):
        connection.ask(SEND, send_fields("BenchmarkTest", queue_id), BODY)
    items = {bytes([1 + number]) * 40_000: "" for number in range(4)}
    connection.ask(BATCH, send_fields("BenchmarkTest", queue_id), batch_body(items))


def hear_all(connection: RawConnection) -> list[RawAnswer]:
    return [connection.hear() for _ in range(SENDS)]


@contextmanager
def counting(call: Callable[[], object]) -> Iterator[list[None]]:
    """Repeats a call in a thread meanwhile; gives an entry for each that ended."""
    ended: list[None] = []
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            call()
            ended.append(None)

    with ThreadPoolExecutor(1) as thread:
        repeated = thread.submit(repeat)
        try:
            yield ended
        finally:
            over.set()
        repeated.result()


def attempt(directory: Path) -> float:
    """Sends on two connections, and pulls on a third; the longest standstill of the loop, in ms."""
    slow = slow_broker(directory)
    with slow.watched() as gaps, ExitStack() as stack:
        one, other, puller = (stack.enter_context(RawConnection(slow.address)) for _ in range(3))
        began = time.monotonic()
        for queue_id, connection in enumerate((one, other)):
            ask_all(connection, queue_id)
        with counting(lambda: puller.call(PULL, ONE_PULL)) as pulls:
            answers = [hear_all(one), hear_all(other)]
        took_s = time.monotonic() - began
    assert took_s > ALLOCATION_MS / 1_000, "no segment was late"
    for connection, heard in zip((one, other), answers, strict=True):
        assert [answer.opaque for answer in heard] == list(range(1, connection.opaque + 1))
        assert {answer.code for answer in heard} == {0}, {answer.remark for answer in heard}
        offsets = [int(answer.ext["queueOffset"]) for answer in heard]
        assert offsets == list(range(SENDS)), "stored in the order in which they were sent"
    assert len(pulls) > PULLS, "pulls waited as the sends did"
    stall_ms = max((gap.stall_ms for gap in gaps), default=0.0)
    print(f"{took_s:.1f} s, {len(pulls)} pulls, longest standstill {stall_ms:.1f} ms")
    return stall_ms


def test_sends_wait_for_a_late_segment_in_order_and_the_loop_does_not(tmp_path: Path) -> None:
    stalls = []
    for number in range(ATTEMPTS):
        stalls.append(attempt(tmp_path / str(number)))
        if stalls[-1] <= STALL_MS:
            return
    raise AssertionError(stalls)


def test_a_stop_does_not_wait_for_sends_that_wait_for_a_segment(tmp_path: Path) -> None:
    slow = slow_broker(tmp_path / "broker")
    with slow, RawConnection(slow.address) as connection:
        ask_all(connection, 0)
        connection.hear()
        ask_all(connection, 0)
        assert slow.stop() == 0
        stored = 0
        with suppress(Closed):
            while connection.hear().code == 0:
                stored += 1
    assert stored < 2 * SENDS - 1, "the stop waited for all of them"
