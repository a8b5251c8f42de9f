"""Many delayed messages due at once: how soon they are delivered, and what producers keep.

`python -m bench.schedule [MESSAGES]`: messages are parked in one level, then a producer that never
waits stores messages round by round in the same loop, alone and while all of them are delivered.
One core, in process, no network. The producer's rates are per second of the loop's own CPU time, so
that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path

import trio

from aerobee.broker.broker import Broker
from aerobee.broker.config.model import BrokerConfig
from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format.record import MessageDraft
from aerobee.store.results import PutStatus
from bench.arguments import program, whole

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = "UNIQ_KEY\x017F000001AAAA18B4AAC2000000000001\x02WAIT\x01true\x02"
PER_ROUND = 64
"""Messages of one round of the producer: what a selector finds with so many connections."""
ALONE_S = 3.0
STALL_TICK_S = 0.005


def draft(topic: str) -> MessageDraft:
    return MessageDraft(topic, 0, b"x" * 128, PROPERTIES.encode(), HOST, HOST, born_timestamp=1)


class Producer:
    """Stores messages as fast as the loop lets it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sent = 0

    async def run(self) -> None:
        message = draft("Bench")
        while True:
            for _ in range(PER_ROUND):
                assert self.broker.core.store.put(message).status is PutStatus.PUT_OK
            self.broker.core.rounds.after_round()
            self.sent += PER_ROUND
            await trio.lowlevel.checkpoint()


class Stalls:
    """The longest that the loop stood still."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await trio.sleep(STALL_TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - began - STALL_TICK_S)


async def park(broker: Broker, count: int) -> None:
    """All into level 1: due a second after the last."""
    for number in range(count):
        properties = {"UNIQ_KEY": f"{number:032}", "DELAY": "1"}
        assert broker.core.puts.put(draft("Late"), properties).status is PutStatus.PUT_OK
        if number % 500 == 0:
            broker.core.rounds.after_round()
            await trio.lowlevel.checkpoint()
    broker.core.rounds.after_round()


async def measure(directory: str, count: int) -> None:
    store = StoreConfig(store_path_root_dir=directory, message_delay_level="20s")
    broker = Broker(BrokerConfig(store=store), disk=Disk(), clock=SystemClock())
    broker.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.core.store.run)
        began = time.perf_counter()
        await park(broker, count)
        row("parked, messages/s", count / (time.perf_counter() - began))
        row("parked within, s", time.perf_counter() - began)
        producer, stalls = Producer(broker), Stalls()
        nursery.start_soon(producer.run)
        await trio.sleep(1)
        alone, spent = producer.sent, time.thread_time()
        await trio.sleep(ALONE_S)
        alone_rate = (producer.sent - alone) / (time.thread_time() - spent)
        row("producer alone, messages per s of the loop's CPU", alone_rate)
        last_due = broker.core.store.commit_log.last_store_timestamp
        wait_s = 21 - (time.time() - last_due / 1000)
        await trio.sleep(max(0.0, wait_s))
        nursery.start_soon(stalls.run)
        began, spent, sent = time.perf_counter(), time.thread_time(), producer.sent
        await broker.delay.schedule.tick()
        took, spent = time.perf_counter() - began, time.thread_time() - spent
        assert broker.core.store.max_offset("Late", 0) == count
        row("all due at once, delivered within, s", took)
        row("delivered, messages/s", count / took)
        row("producer meanwhile, messages per s of CPU", (producer.sent - sent) / spent)
        row("producer keeps", (producer.sent - sent) / spent / alone_rate)
        row("longest gap in the loop, ms", stalls.longest_s * 1000)
        nursery.cancel_scope.cancel()
    await broker.core.store.close()


def row(name: str, value: float) -> None:
    print(f"{name:<50} {value:>12,.2f}", flush=True)


@program
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.schedule")
    parser.add_argument("messages", type=whole, nargs="?", default=100_000)
    messages = parser.parse_args().messages
    print(f"schedule · {platform.machine()} · Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as directory:
        assert Path(directory).is_dir()
        trio.run(measure, directory, messages)


if __name__ == "__main__":
    main()
