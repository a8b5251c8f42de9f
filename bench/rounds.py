"""The CPU of a broker's rounds per message: everything from the receive to the send of answers.

    python -m bench.rounds [--only NAME] [--rounds 300] [--sync]

A whole broker in this process, its sockets included. For each round the frames are sent first,
then the selectors serve all of them at once, and the CPU time of the thread is taken. The fastest
tenth of many rounds hardly depends on what else the machine does. "behind" is what the tasks behind
the rounds take, the index above all; with `--sync`, under SYNC_FLUSH, the answers are among them.
"""

from __future__ import annotations

import argparse
import gc
import logging
import select
import socket
import statistics
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.config.settings.metrics import MetricsConfig, MetricsExporterType
from aerobee.broker.config.settings.namesrv import NamesrvConfig
from aerobee.broker.controller import BrokerController
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.poller import READ
from aerobee.remoting.wire.command import encode_request
from aerobee.store.config import FlushDiskType, StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from bench.arguments import chosen, program, whole
from bench.machine import describe
from tests.kit.ports import free_block, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aerobee.remoting.server.selector import Selector

QUEUES = 16
RECEIVE_BYTES = 1 << 20
SERVED_WITHIN_S = 30.0
"""A round that takes longer has lost a message."""


class Case(NamedTuple):
    """`connections` send `depth` frames each per round, of `batch` messages if that is not 0."""

    name: str
    connections: int
    depth: int
    body_bytes: int = 128
    batch: int = 0

    @property
    def messages(self) -> int:
        """In one round."""
        return self.connections * self.depth * (self.batch or 1)


CASES = (
    Case("128 B, 8 connections x 32", 8, 32),
    Case("128 B, 64 connections x 1", 64, 1),
    Case("128 B, 8 connections x 1", 8, 1),
    Case("128 B, 1 connection x 1", 1, 1),
    Case("1 KiB, 64 connections x 1", 64, 1, 1024),
    Case("batches of 32 x 128 B, 8 connections x 4", 8, 4, 128, 32),
)


def frames(case: Case, connection: int, number: int) -> bytes:
    """The frames that a connection sends in one round."""
    return b"".join(frame(case, connection, number * case.depth + one) for one in range(case.depth))


def frame(case: Case, connection: int, number: int) -> bytes:
    """One request, with the fields and values that rawload sends."""
    queue = (connection + number) % QUEUES
    unique = f"UNIQ_KEY\x017F000001{connection:08X}{number:08X}{queue:08X}\x02WAIT\x01true"
    fields = {
        "a": "pg",
        "b": "BenchmarkTest",
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": unique,
        "j": "0",
        "k": "false",
        "m": "true" if case.batch else "false",
    }
    body = b"x" * case.body_bytes
    if case.batch:
        size = (22 + len(body)).to_bytes(4, "big")
        item = size + bytes(12) + len(body).to_bytes(4, "big") + body + bytes(2)
        body = item * case.batch
    return encode_request(320 if case.batch else 310, number, fields, body, version=401)


class Bench:
    """A broker and the connections of one case."""

    def __init__(self, broker: BrokerController, case: Case, port: int) -> None:
        self.case = case
        self.selectors: list[Selector] = broker.broker.core.rounds.reactor.selectors
        self.stats = broker.broker.core.store.stats
        self.clients = [
            socket.create_connection(("127.0.0.1", port)) for _ in range(case.connections)
        ]
        self.number = 0

    def send(self) -> None:
        """Send the frames of a round."""
        for connection, client in enumerate(self.clients):
            client.sendall(frames(self.case, connection, self.number))
        self.number += 1

    async def serve(self) -> None:
        """Serve what was sent. Raises: RuntimeError when the broker does not store all of it."""
        before = self.stats.messages_put
        deadline = time.monotonic() + SERVED_WITHIN_S
        while (stored := self.stats.messages_put - before) < self.case.messages:
            if not serve_ready(self.selectors):
                # A request that waits for a task or a thread of the broker needs the loop.
                await trio.lowlevel.checkpoint()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{stored} of {self.case.messages} messages were stored")

    def take_answers(self) -> None:
        """Read the answers, so that the sockets never fill."""
        for client in self.clients:
            ready, _, _ = select.select([client], [], [], 0)
            if ready:
                client.recv(RECEIVE_BYTES)

    async def measure(self, rounds: int) -> tuple[float, float]:
        """µs per message: of the fastest tenth of the rounds, and of all that runs behind them."""
        took, behind = [], 0.0
        for _ in range(rounds):
            self.send()
            began = time.thread_time_ns()
            await self.serve()
            took.append(time.thread_time_ns() - began)
            began = time.thread_time_ns()
            await trio.sleep(0.003)
            behind += time.thread_time_ns() - began
            self.take_answers()
        return per_message(took, behind, self.case.messages)


def serve_ready(selectors: list[Selector]) -> bool:
    """A round of each selector that has something to do; whether any had."""
    busy = False
    for selector in selectors:
        events = [(fd, READ) for fd in selector.poller.holding()]
        if events or selector.waiting or selector.ready:
            selector.round(events)
            busy = True
    return busy


def per_message(took: list[int], behind: float, messages: int) -> tuple[float, float]:
    """µs, from the ns of all rounds: of the fastest tenth of them, and of all behind them."""
    fastest = statistics.quantiles(took, n=10)[0]
    return fastest / messages / 1e3, behind / len(took) / messages / 1e3


@asynccontextmanager
async def serving(
    directory: Path, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
) -> AsyncIterator[tuple[BrokerController, int]]:
    """A broker with Java's defaults that refuses nothing because the machine is busy; its port."""
    port = free_block().listen
    config = replace(
        BrokerConfig(),
        store=StoreConfig(store_path_root_dir=str(directory / "data"), flush_disk_type=flush),
        remoting=RemotingConfig(
            listen_port=port,
            vip_listen_port=0,
            wait_time_mills_in_send_queue=600_000,
            os_page_cache_busy_time_out_ms=600_000,
        ),
        namesrv=NamesrvConfig(namesrv_listen_port=free_port()),
        metrics=MetricsConfig(metrics_exporter_type=MetricsExporterType.DISABLE),
        console=ConsoleConfig(console_port=0),
    )
    controller = BrokerController(config, disk=Disk(), clock=SystemClock())
    served = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.run, lambda _: served.set())
        await served.wait()
        gc.freeze()
        yield controller, port
        await trio.sleep(0.1)
        controller.stop()


async def run(directory: Path, cases: list[Case], rounds: int, flush: FlushDiskType) -> None:
    """Print a line per case."""
    async with serving(directory, flush) as (controller, port):
        for case in cases:
            bench = Bench(controller, case, port)
            bench.send()
            await trio.sleep(0.5)
            bench.take_answers()
            await bench.measure(20)
            per_round, behind = await bench.measure(rounds)
            print(f"{case.name:<44} {per_round:>8.2f} {behind:>8.2f}", flush=True)
            for client in bench.clients:
                client.close()
            await trio.sleep(0.1)


def wanted() -> tuple[list[Case], int, FlushDiskType]:
    """The cases, rounds and flush mode of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.rounds")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=whole, default=300)
    parser.add_argument("--sync", action="store_true")
    arguments = parser.parse_args()
    flush = FlushDiskType.SYNC_FLUSH if arguments.sync else FlushDiskType.ASYNC_FLUSH
    names = chosen(arguments.only, [case.name for case in CASES])
    return [case for case in CASES if case.name in names], arguments.rounds, flush


def begin(width: int) -> None:
    """Print the head of the table; the log shows warnings alone."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(describe())
    print(f"{'µs of CPU per message':<{width}} {'round':>8} {'behind':>8}")


def run_whole(bench: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """A run that Ctrl-C ends as a whole: a broker half of whose tasks it hit would go on."""
    trio.run(bench, *arguments, restrict_keyboard_interrupt_to_checkpoints=True)


@program
def main() -> None:
    """Print the table."""
    cases, rounds, flush = wanted()
    begin(44)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        run_whole(run, Path(directory), cases, rounds, flush)


if __name__ == "__main__":
    main()
