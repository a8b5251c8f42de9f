"""The CPU of the broker per message, for pulls and for pops with their acknowledgements.

    python -m bench.reads [--only NAME] [--rounds 400]

As `bench.rounds`, with the same columns: a whole broker in this process, 16 connections that ask
once per round, the fastest tenth of many rounds. Messages of 128 B in 4 queues. A pop is
acknowledged by one request in a second step of its round. Its messages would be visible again
after 3 s, so "behind" has all that follows: check points and acknowledgements go through the
timers into the revive log, meet there, and are indexed.
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from aerobee.remoting.wire.bodies.pop import bit_set
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import encode_request
from aerobee.store.format.system_names import WHEEL_TOPIC
from bench.arguments import chosen, program, whole
from bench.rounds import begin, per_message, run_whole, serve_ready, serving
from tests.kit.raw_client import pull_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.controller import BrokerController
    from aerobee.remoting.server.selector import Selector

CONNECTIONS = 16
MESSAGES = 32
QUEUES = 4
TOPIC = "ReadBench"
HIDDEN_MS = 3_000
FILLED = 200
"""Batches of 32 in each queue: enough for many rounds of one group."""
GROUP_ROUNDS = FILLED * QUEUES // CONNECTIONS
SETTLED_S = 9.0
"""Until the last check point is met: its time, the wheel's step, the grace of the revival."""
SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
PULL, POP = int(RequestCode.PULL_MESSAGE), int(RequestCode.POP_MESSAGE)
ACK = int(RequestCode.BATCH_ACK_MESSAGE)
EXT = re.compile(rb'"(popTime|reviveQid|startOffsetInfo|msgOffsetInfo)":"([^"]*)"')


class Bench:
    """A broker, its connections, and how often they asked."""

    def __init__(self, broker: BrokerController, port: int) -> None:
        core = broker.broker.core
        self.selectors: list[Selector] = core.rounds.reactor.selectors
        self.stats = core.rounds.reactor.stats
        self.name = core.config.broker.broker_name
        self.clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
        self.number = 0

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"", at: int = 0) -> None:
        """Send one request on a connection."""
        self.number += 1
        frame = encode_request(code, self.number, fields, body, version=479)
        self.clients[at].sendall(frame)

    def serve(self, requests: int) -> int:
        """Serve so many requests that were sent; returns the nanoseconds of CPU it took."""
        began = time.thread_time_ns()
        target = self.stats.requests + requests
        while self.stats.requests < target or any(one.waiting for one in self.selectors):
            serve_ready(self.selectors)
        return time.thread_time_ns() - began

    def answers(self) -> list[bytes]:
        """The header of each connection's answer."""
        return [answer(client) for client in self.clients]


def answer(client: socket.socket) -> bytes:
    """The header of the next answer; its body is read and dropped."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += client.recv(1 << 20)
    (header,) = struct.unpack_from(">I", data, 4)
    return bytes(data[8 : 8 + (header & 0xFFFFFF)])


async def fill(bench: Bench) -> None:
    """Batches of 32 messages into each queue, one after the other."""
    item = struct.pack(">iiiii", 22 + 128, 0, 0, 0, 128) + b"x" * 128 + bytes(2)
    for number in range(FILLED * QUEUES):
        queue = str(number % QUEUES)
        fields = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": queue, "f": "0"}
        fields |= {"g": "0", "h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
        bench.ask(SEND_BATCH, fields, item * MESSAGES)
        await trio.lowlevel.wait_readable(bench.clients[0])
        answer(bench.clients[0])


def pulls(bench: Bench, number: int) -> int:
    """A round of pulls, each of another place."""
    for at in range(CONNECTIONS):
        offset = (number * CONNECTIONS + at) % FILLED * MESSAGES
        fields = {
            key: str(value)
            for key, value in pull_fields("reads", TOPIC, at % QUEUES, offset).items()
        }
        bench.ask(PULL, fields, at=at)
    took = bench.serve(CONNECTIONS)
    bench.answers()
    return took


def pops(bench: Bench, number: int) -> int:
    """A round of pops, and one of their acknowledgements."""
    group = f"pop_{number // GROUP_ROUNDS}"
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(MESSAGES)}
    fields |= {"invisibleTime": str(HIDDEN_MS), "pollTime": "0", "initMode": "0", "order": "false"}
    fields |= {"expType": "TAG", "exp": "*", "bornTime": str(time.time_ns() // 1_000_000)}
    for at in range(CONNECTIONS):
        bench.ask(POP, fields, at=at)
    took = bench.serve(CONNECTIONS)
    for at, header in enumerate(bench.answers()):
        bench.ask(ACK, {}, acknowledgement(header, group, bench.name), at)
    took += bench.serve(CONNECTIONS)
    bench.answers()
    return took


def acknowledgement(header: bytes, group: str, broker: str) -> bytes:
    """The body that acknowledges all messages of a pop."""
    ext = {name: text.decode() for name, text in EXT.findall(header)}
    starts = {piece.split()[1]: piece.split()[2] for piece in ext[b"startOffsetInfo"].split(";")}
    acks = []
    for piece in ext[b"msgOffsetInfo"].split(";"):
        _, queue, offsets = piece.split()
        start = int(starts[queue])
        bits = bit_set(map(int, offsets.split(",")), start)
        acks.append(
            f'{{"b":"{bits}","c":"{group}","it":{HIDDEN_MS},"pt":{ext[b"popTime"]},"q":{queue},'
            f'"r":"0","rq":{ext[b"reviveQid"]},"so":{start},"t":"{TOPIC}"}}'
        )
    return f'{{"acks":[{",".join(acks)}],"brokerName":"{broker}"}}'.encode()


CASES: dict[str, Callable[[Bench, int], int]] = {
    "pull of 32 x 128 B, 16 x 1": pulls,
    "pop of 32 x 128 B with one batch acknowledgement, 16 x 1": pops,
}


async def measure(
    controller: BrokerController, bench: Bench, case: Callable[[Bench, int], int], rounds: int
) -> tuple[float, float]:
    """µs per message: of the fastest tenth of the rounds, and of all that runs behind them."""
    took, behind = [], 0.0
    for number in range(rounds):
        took.append(case(bench, number))
        behind += await slept(0.003)
    if controller.broker.core.store.max_offset(WHEEL_TOPIC, 0):
        behind += await slept(SETTLED_S) - await slept(SETTLED_S)
    return per_message(took, behind, CONNECTIONS * MESSAGES)


async def slept(seconds: float) -> int:
    """Nanoseconds of CPU that everything else in the loop takes meanwhile."""
    began = time.thread_time_ns()
    await trio.sleep(seconds)
    return time.thread_time_ns() - began


async def run(directory: Path, names: list[str], rounds: int) -> None:
    """Print a line per case."""
    async with serving(directory) as (controller, port):
        bench = Bench(controller, port)
        await trio.sleep(0.5)
        await fill(bench)
        await trio.sleep(0.5)
        for name in names:
            for number in range(20):
                pulls(bench, number)
            per_round, behind = await measure(controller, bench, CASES[name], rounds)
            print(f"{name:<60} {per_round:>8.2f} {behind:>8.2f}", flush=True)
        for client in bench.clients:
            client.close()


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.reads")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=whole, default=400)
    arguments = parser.parse_args()
    names = chosen(arguments.only, CASES)
    begin(60)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        run_whole(run, Path(directory), names, arguments.rounds)


if __name__ == "__main__":
    main()
