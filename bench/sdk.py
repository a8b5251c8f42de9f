"""The SDK in one process against a broker in another: messages in a second, and the client's CPU.

    python -m bench.sdk [--messages 200000] [--seconds 4] [--turns 1] [--only WORDS] [--java]

Consumers read the same messages of 128 B from eight queues, each with a group of its own; producers
send as much as they can in the time. The broker works on another core. Of several turns the best
counts: it had least to share with. With `--java` the cases that the official Java client 5.4.0 has
as well (`tests/interop/java/Load.java`) are measured in turns with it, after a turn of each that
warms up. It prints the medians of the turns, and of their ratios. All talk over 127.0.0.1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import anyio

from aerobee import (
    ConsumeFrom,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from bench.arguments import chosen, positive, program, whole
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import OPENS, toolkit
from tests.kit.process import Child

TOPIC = "SdkBench"
BODY = bytes(128)
QUEUES = 8
BATCH = 500
POPPERS = 8
IN_FLIGHT = 128
OUTBOX = 10_000
"""The number of messages that `send_soon` lets wait by default."""
FIRST = ConsumeFrom.FIRST
WITHIN_S = 300.0
IDLE_S = 10.0
SIZES: dict[str, object] = {"mappedFileSizeCommitLog": 256 << 20}
JAVA = "5.4.0"
JVM = ("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC")


class Turn(NamedTuple):
    """The amounts of one turn."""

    messages: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6


class Amounts(NamedTuple):
    """The place and the size of a turn."""

    namesrv: str
    messages: int
    """The number that consumers read."""
    seconds: float
    """The time in which producers send."""
    group: str = "bench"


Case = Callable[[Amounts], Turn]
FIGURES: tuple[Callable[[Turn], float], ...] = (attrgetter("rate"), attrgetter("cpu_us"))

# ── Consumers ──


class Countdown:
    """Counts messages until there were so many, and says how long that took."""

    def __init__(self, messages: int) -> None:
        self.messages = self.left = messages
        self.began_s = self.cpu_s = 0.0
        self.turn: Turn | None = None
        self.over = threading.Event()
        self._lock = threading.Lock()

    def count(self, messages: Sequence[ReceivedMessage]) -> None:
        """These were handled; the clock starts with the first."""
        with self._lock:
            if not self.began_s:
                self.began_s, self.cpu_s = time.perf_counter(), time.process_time()
            self.left -= len(messages)
            if self.left <= 0 and self.turn is None:
                took_s, cpu_s = time.perf_counter() - self.began_s, time.process_time() - self.cpu_s
                self.turn = Turn(self.messages, took_s, cpu_s)
                self.over.set()


def consumer(consume: Callable[[Amounts, Countdown], Coroutine[Any, Any, None]]) -> Case:
    """A case of a function that consumes until the countdown is over."""

    def run(amounts: Amounts) -> Turn:
        countdown = Countdown(amounts.messages)
        anyio.run(consume, amounts, countdown)
        assert countdown.turn is not None
        return countdown.turn

    return run


async def over(countdown: Countdown) -> None:
    """Until all messages were handled."""
    with anyio.fail_after(WITHIN_S):
        while not countdown.over.is_set():  # noqa: ASYNC110  (set from any thread)
            await anyio.sleep(0.05)


def push(batch_size: int) -> Case:
    """An async handler that does nothing."""

    async def consume(amounts: Amounts, countdown: Countdown) -> None:
        group, namesrv = amounts.group, amounts.namesrv
        pushed = PushConsumer(group, namesrv, start_from=FIRST, batch_size=batch_size)

        async def handler(messages: Sequence[ReceivedMessage]) -> None:
            countdown.count(messages)

        pushed.subscribe(TOPIC, handler=handler)
        async with pushed:
            await over(countdown)

    return consumer(consume)


@consumer
async def push_threads(amounts: Amounts, countdown: Countdown) -> None:
    """A plain handler on four threads."""
    pushed = blocking.PushConsumer(amounts.group, amounts.namesrv, start_from=FIRST, concurrency=4)
    pushed.subscribe(TOPIC, handler=countdown.count)
    with pushed:
        await over(countdown)


@consumer
async def pop(amounts: Amounts, countdown: Countdown) -> None:
    """Eight tasks that take 32 and acknowledge them together."""

    async def work(popped: PopConsumer) -> None:
        while not countdown.over.is_set():
            messages = await popped.receive(TOPIC, wait=1.0)
            countdown.count(messages)
            await popped.ack(*messages)

    async with (
        PopConsumer(amounts.group, amounts.namesrv, start_from=FIRST) as popped,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(POPPERS):
            tasks.start_soon(work, popped)


def fill(namesrv: str, messages: int) -> None:
    """So many messages, evenly in the queues of the topic."""
    with blocking.AdminClient(namesrv) as admin:
        admin.create_topic(TOPIC, queues=QUEUES)
    with blocking.Producer(namesrv) as producer:
        for _ in range(messages // BATCH):
            producer.send_batch([Message(TOPIC, BODY)] * BATCH)


# ── Producers ──


def timed(send: Callable[[str, float], int]) -> Case:
    """A case of a function that sends for so many seconds, and says how many messages."""

    def run(amounts: Amounts) -> Turn:
        cpu_s, began = time.process_time(), time.perf_counter()
        sent = send(amounts.namesrv, amounts.seconds)
        return Turn(sent, time.perf_counter() - began, time.process_time() - cpu_s)

    return run


def tasks(count: int, batch: int = 1) -> Case:
    """So many tasks that each send one message, or one batch, after the other."""

    async def run(namesrv: str, seconds: float) -> int:
        sent = 0
        async with Producer(namesrv) as producer, anyio.create_task_group() as group:
            until = time.perf_counter() + seconds

            async def send() -> None:
                nonlocal sent
                while time.perf_counter() < until:
                    if batch == 1:
                        await producer.send(Message(TOPIC, BODY))
                    else:
                        await producer.send_batch([Message(TOPIC, BODY) for _ in range(batch)])
                    sent += batch

            for _ in range(count):
                group.start_soon(send)
        return sent

    return timed(lambda namesrv, seconds: anyio.run(run, namesrv, seconds))


@timed
def soon(namesrv: str, seconds: float) -> int:
    """One task that hands over message by message; at the end all of them are stored."""

    async def run() -> int:
        sent = 0
        async with Producer(namesrv) as producer:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                await producer.send_soon(Message(TOPIC, BODY))
                sent += 1
            await producer.flush()
        return sent

    return anyio.run(run)


def thread(method: str) -> Case:
    """One thread with the blocking front: `send` or `send_soon`."""

    @timed
    def run(namesrv: str, seconds: float) -> int:
        sent = 0
        with blocking.Producer(namesrv) as producer:
            send = getattr(producer, method)
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                send(Message(TOPIC, BODY))
                sent += 1
            producer.flush()
        return sent

    return run


CASES: dict[str, Case] = {
    "push, async handler, one by one": push(1),
    "push, async handler, 32 at a time": push(32),
    "push, 4 threads, one by one": push_threads,
    "pop of 32, acknowledged together": pop,
    "async, one by one": tasks(1),
    f"async, {IN_FLIGHT} tasks": tasks(IN_FLIGHT),
    f"async, batches of {BATCH}, two at a time": tasks(2, BATCH),
    "async, send_soon": soon,
    "blocking, one by one": thread("send"),
    "blocking, send_soon": thread("send_soon"),
}
THEIRS: dict[str, tuple[str, ...]] = {
    "push, async handler, one by one": ("push",),
    "blocking, one by one": ("sync",),
    "async, one by one": ("sync",),
    f"async, {IN_FLIGHT} tasks": ("async", str(IN_FLIGHT)),
    "async, send_soon": ("async", str(OUTBOX)),
}
"""The cases of the Java client: the word of `Load`, and how many sends are in flight."""

# ── The Java client ──


class JavaLoad:
    """`Load` in a JVM with its usual compilers."""

    def __init__(self, home: Path, namesrv: str) -> None:
        tools = toolkit(JAVA)
        places = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}/logs")
        path = f"{tools.classes}:{tools.jars}/*"
        command = ["java", *JVM, *OPENS, *places, "-cp", path, "Load", namesrv, TOPIC]
        self.child = Child(command, log=home / "load.log", at=home)

    def run(self, name: str, amounts: Amounts) -> Turn:
        """One turn of a case."""
        word, *rest = THEIRS[name]
        if word == "push":
            self.child.write_line(f"push {amounts.messages} {amounts.group}")
        else:
            self.child.write_line(" ".join([word, str(amounts.seconds), *rest]))
        messages, seconds, cpu_s = self.child.read_line(within_s=WITHIN_S).split()
        return Turn(int(messages), float(seconds), float(cpu_s))


def compared(java: JavaLoad, name: str, amounts: Amounts, turns: int) -> str:
    """A line of medians: ours, theirs, and the ratio, for rate and CPU."""
    pairs = []
    for turn in range(turns + 1):
        groups = (f"{amounts.group}-{side}-{turn}" for side in ("ours", "java"))
        ours, theirs = (amounts._replace(group=group) for group in groups)
        pairs.append((CASES[name](ours), java.run(name, theirs)))
    del pairs[0]  # it has warmed up
    cells = []
    for figure in FIGURES:
        medians = [median(figure(pair[side]) for pair in pairs) for side in (0, 1)]
        ratio = median(figure(our) / figure(their) for our, their in pairs)
        cells.append(f"{medians[0]:>10,.1f} {medians[1]:>10,.1f} {ratio:>6.2f}")
    return f"{name:<40} {'   '.join(cells)}"


# ── A client at rest ──

IDLE = """
import asyncio, time
from aerobee import Message, Producer
async def main():
    async with Producer({namesrv!r}) as producer:
        await producer.send(Message({topic!r}, b"x"))
        began = time.process_time()
        await asyncio.sleep({idle_s})
        cpu = time.process_time() - began
        lines = open("/proc/self/status").read().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
        print(f"{{cpu / {idle_s}:.2%}} of a core, {{memory / 1024:.0f}} MiB RssAnon")
asyncio.run(main())
"""
IMPORT = "import time; t = time.perf_counter(); import aerobee; print(time.perf_counter() - t)"


def at_rest(namesrv: str) -> None:
    """Print the cost of a producer that has sent one message, of an import and of a command."""
    idle = IDLE.format(namesrv=namesrv, topic=TOPIC, idle_s=IDLE_S)
    words = subprocess.check_output([sys.executable, "-c", idle], text=True).strip()
    print(f"{'idle client':<40} {words}")
    times = [float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(5)]
    print(f"{'import aerobee':<40} {min(times) * 1000:.0f} ms")
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.check_output([sys.executable, "-m", "aerobee", "--help"])
        times.append(time.perf_counter() - began)
    print(f"{'aerobee --help':<40} {min(times) * 1000:.0f} ms")


@program
def main() -> None:
    """All cases, or those whose name holds `--only`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=whole, default=200_000)
    parser.add_argument("--seconds", type=positive, default=4.0)
    parser.add_argument("--turns", type=whole, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--java", action="store_true", help="beside the official Java client")
    options = parser.parse_args()
    names = chosen(options.only, THEIRS if options.java else CASES)
    print(describe(), flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(data=Path(folder) / "data", settings=SIZES) as broker,
    ):
        namesrv = broker.namesrv_address
        fill(namesrv, options.messages)
        groups = {name: f"case-{number}" for number, name in enumerate(names)}
        amounts = Amounts(namesrv, options.messages // BATCH * BATCH, options.seconds)
        if options.java:
            java = JavaLoad(Path(folder), namesrv)
            print(f"{'msgs/s, µs CPU/msg: ours, Java, ratio':<40}", flush=True)
            with java.child:
                for name in names:
                    case = amounts._replace(group=groups[name])
                    print(compared(java, name, case, options.turns), flush=True)
            return
        for name in names:
            turns = [
                CASES[name](amounts._replace(group=f"{groups[name]}-{turn}"))
                for turn in range(options.turns)
            ]
            best = max(turns, key=lambda turn: turn.rate)
            figures = f"{best.rate:>10,.0f} msg/s {best.cpu_us:>8.1f} µs CPU/msg"
            print(f"{name:<40} {figures} {best.cpu_s / best.seconds:>5.0%} of a core", flush=True)
        if not options.only:
            at_rest(namesrv)


if __name__ == "__main__":
    main()
