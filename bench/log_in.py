"""The CPU of a slave per record, from the receive to its queues and its index.

    python -m bench.log_in [--mib 64] [--rounds 5] [--body 1024]

A store takes the log of a master over a stream that is always full, as while it catches up. Printed
is the least CPU of the rounds: of the loop, and of the whole process with its threads.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format.ha import encode_frames
from aerobee.store.format.record import MessageDraft, encode
from aerobee.store.message_store import MessageStore
from aerobee.store.replication.log_out import Pace
from bench.arguments import program, whole
from bench.machine import describe

MiB = 1 << 20
QUEUES = 8
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")


class Cpu(NamedTuple):
    """CPU seconds of one round."""

    loop: float
    process: float


class FullStream(trio.abc.Stream):
    """A connection whose master has sent all of it already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.ended = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, as many as are asked for."""
        await trio.lowlevel.checkpoint()
        piece = self._data[self._at : self._at + (max_bytes or len(self._data))]
        self._at += len(piece)
        if not piece:
            self.ended.set()
            await trio.sleep_forever()
        return piece

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Take a report."""
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        """The buffer always takes them."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Nothing is open."""
        await trio.lowlevel.checkpoint()


def records(size: int, body_bytes: int) -> list[bytes]:
    """Messages with a body of that size, with unique keys and tags, in turns for each queue."""
    log: list[bytes] = []
    at = 0
    body = bytes(range(256)) * (body_bytes // 256 + 1)
    while at < size:
        number = len(log)
        properties = b"UNIQ_KEY\x01AC110001%024d\x02WAIT\x01true\x02TAGS\x01TagA\x02" % number
        queue_id, queue_offset = number % QUEUES, number // QUEUES
        draft = MessageDraft("orders", queue_id, body[:body_bytes], properties, HOST, HOST)
        log.append(encode(draft, queue_offset, at, 1_700_000_000_000))
        at += len(log[-1])
    return log


async def copied(data: bytes, *, index: bool) -> Cpu:
    """The CPU that one store takes for all of it."""
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        config = StoreConfig(
            store_path_root_dir=str(Path(directory) / "store"),
            mapped_file_size_commit_log_bytes=256 * MiB,
            message_index_enable=index,
        )
        store = MessageStore(config, disk=Disk(), clock=SystemClock())
        store.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            store.be_slave()
            stream = FullStream(data)
            loop, process = time.thread_time(), time.process_time()
            nursery.start_soon(store.log_in.follow, stream, store.dispatch)
            await stream.ended.wait()
            while (  # noqa: ASYNC110  # The index tells nobody.
                store.dispatch_behind_bytes or (index and store.index.service.behind_bytes)
            ):
                await trio.sleep(0.001)
            cpu = Cpu(time.thread_time() - loop, time.process_time() - process)
            nursery.cancel_scope.cancel()
        await store.close()
        return cpu


@program
def main() -> None:
    """Print the CPU per record and the MiB per CPU second, without and with the index."""
    parser = argparse.ArgumentParser(prog="python -m bench.log_in")
    parser.add_argument("--mib", type=whole, default=64)
    parser.add_argument("--rounds", type=whole, default=5)
    parser.add_argument("--body", type=whole, default=1_024)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(describe())
    log = records(given.mib * MiB, given.body)
    data = encode_frames(0, memoryview(b"".join(log)), Pace().batch_bytes)
    for index in (False, True):
        rounds = [trio.run(lambda: copied(data, index=index)) for _ in range(given.rounds)]  # noqa: B023  # run at once
        for name, cpu in (
            ("loop", min(cpu.loop for cpu in rounds)),
            ("process", min(cpu.process for cpu in rounds)),
        ):
            print(
                f"{'with' if index else 'without'} index, {name}:"
                f" {cpu / len(log) * 1e6:.2f} µs per record, {given.mib / cpu:,.0f} MiB per CPU s"
            )


if __name__ == "__main__":
    main()
