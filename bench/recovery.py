"""The time of a start: per GiB of log that has to be walked after a kill, and after a clean stop.

    python -m bench.recovery [--mib 256] [--runs 3] [--gib 10] [--topics 375] [DIRECTORY]
    python -m bench.recovery --ready 5 20 [--runs 3] [DIRECTORY]

`--ready`: the broker itself, killed while it takes batches as fast as it can, after so many
seconds; from process start to its ready line by the clock, and its CPU until then. That should
depend on how fast it wrote, and not on how much. The load is that of `bench.broker`.

After a kill: a log without checkpoint and queues, so that every record is checked, gets its unit
again and is written again; seconds per GiB, median of the runs, wall clock and CPU of the process.
After a clean stop: a store of that many GiB of segments and eight queues per topic; then the same
after a kill, when the queues are what takes long. In process, no network, log in the page cache.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format import names
from aerobee.store.format.record import MessageDraft, encode
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.message_store import MessageStore
from bench.arguments import existing_directory, positive, program, whole
from bench.load import DEFAULT_SIZES, build
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import cpu_s

MiB = 1 << 20
GiB = 1 << 30
SIZES = (128, 1024, 4096)
READY_SIZES = (128, 1024)
QUEUES = 8
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = b"TAGS\x01TagA\x02UNIQ_KEY\x017F000001AAAA18B4AAC2%012X\x02WAIT\x01true\x02"


class Took(NamedTuple):
    """One start."""

    wall_s: float
    cpu_s: float


def draft(number: int, size: int, topics: int = 1) -> MessageDraft:
    topic = f"Topic{number // QUEUES % topics}"
    properties = PROPERTIES % number
    return MessageDraft(topic, number % QUEUES, b"x" * size, properties, HOST, HOST)


def write_log(root: Path, size: int, up_to: int) -> None:
    """A log as a broker leaves it that was killed at once: no checkpoint, no queue."""
    log = CommitLog(Disk(), root / names.COMMIT_LOG, GiB)
    log.queue.directory.mkdir(parents=True)
    now_ms = time.time_ns() // 1_000_000
    number = 0
    while log.max_offset < up_to:
        message = draft(number, size)
        while not log.append(encode(message, number // QUEUES, log.max_offset, now_ms), now_ms):
            log.roll(size)
        number += 1
    log.close()
    (root / names.ABORT).touch()


def write_store(root: Path, segments: int, topics: int, disk: Disk | None = None) -> None:
    """So many segments of default size with a few records each, stopped cleanly."""
    store = open_store(root, disk)
    for number in range(2 * QUEUES * topics * segments):
        if number and not number % (2 * QUEUES * topics):
            store.commit_log.roll(GiB)
        store.put(draft(number, 128, topics))
    store.dispatch()
    trio.run(stop, store)


def open_store(root: Path, disk: Disk | None = None) -> MessageStore:
    config = StoreConfig(store_path_root_dir=str(root))
    store = MessageStore(config, disk=disk or Disk(), clock=SystemClock())
    store.load()
    return store


def start(root: Path) -> Took:
    """Load the store as a broker does, then stop it cleanly."""
    wall, cpu = time.perf_counter(), time.process_time()
    store = open_store(root)
    took = Took(time.perf_counter() - wall, time.process_time() - cpu)
    trio.run(stop, store)
    return took


async def stop(store: MessageStore) -> None:
    """With everything in the index, as without that a stop is no clean one."""
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        while store.index.service.behind_bytes:  # noqa: ASYNC110  (nobody is told when it is done)
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert await store.close()


def killed_again(root: Path) -> None:
    """As before the start: nothing is known but the log."""
    for name in (names.CONSUME_QUEUE, names.INDEX):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / names.CHECKPOINT).unlink(missing_ok=True)
    (root / names.ABORT).touch()


def row(name: str, took: list[Took], scale: float = 1.0) -> None:
    wall = statistics.median(t.wall_s for t in took) * scale
    cpu = statistics.median(t.cpu_s for t in took) * scale
    print(f"{name:<52} {wall:>8.2f} s  {cpu:>8.2f} s CPU", flush=True)


def after_kill(directory: Path, size: int, log_bytes: int, runs: int) -> None:
    root = directory / f"kill-{size}"
    write_log(root, size, log_bytes)
    took = []
    for _ in range(runs):
        killed_again(root)
        took.append(start(root))
    row(f"after a kill, {size} B, per GiB", took, GiB / log_bytes)
    shutil.rmtree(root)


def many_segments(directory: Path, segments: int, topics: int, runs: int) -> None:
    root = directory / "big"
    write_store(root, segments, topics)
    what = f"{segments} GiB, {QUEUES * topics} queues"
    row(f"after a clean stop, {what}", [start(root) for _ in range(runs)])
    took = []
    for _ in range(runs):
        (root / names.ABORT).touch()
        took.append(start(root))
    row(f"after a kill, {what}", took)


def ready_after_kill(directory: Path, size: int, mode: str, seconds: float, runs: int) -> None:
    """A broker that is killed under load, and its next start."""
    took, told = [], []
    settings = DEFAULT_SIZES | {"flushDiskType": mode}
    for run in range(runs):
        data = directory / f"{mode}-{size}-{run}" / "data"
        with BrokerProcess(data=data, settings=settings) as broker:
            options = ("-m", "batch", "-c", "8", "-d", "4", "-s", str(size), "-W", "0")
            to = ("-a", broker.address, "-pid", str(broker.child.pid))
            with subprocess.Popen(
                [str(build()), *to, *options, "-T", str(seconds + 60)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as running:
                try:
                    time.sleep(seconds)
                    broker.kill()
                finally:
                    running.kill()
            ready = broker.start()
            took.append(Took(ready.elapsed_s, cpu_s(broker.child.pid)))
            lines = broker.log.read_text().splitlines()
            told.append(json.loads(next(at for at in reversed(lines) if "store.recovered" in at)))
        shutil.rmtree(data.parent)
    written = statistics.median(one["end_offset"] for one in told) / MiB
    walked = statistics.median(one["records"] for one in told)
    row(f"ready, {mode}, {size} B, {written:,.0f} MiB, {walked:,.0f} walked", took)


@program
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recovery")
    parser.add_argument("directory", type=existing_directory, nargs="?")
    parser.add_argument("--mib", type=whole, default=256)
    parser.add_argument("--runs", type=whole, default=3)
    parser.add_argument("--gib", type=whole, default=10)
    parser.add_argument("--topics", type=whole, default=375)
    parser.add_argument("--ready", type=positive, nargs="+", metavar="SECONDS")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    print(describe())
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        if arguments.ready:
            for mode in ("ASYNC_FLUSH", "SYNC_FLUSH"):
                for size in READY_SIZES:
                    for seconds in arguments.ready:
                        ready_after_kill(Path(directory), size, mode, seconds, arguments.runs)
            return
        for size in SIZES:
            after_kill(Path(directory), size, arguments.mib * MiB, arguments.runs)
        many_segments(Path(directory), arguments.gib, arguments.topics, arguments.runs)


if __name__ == "__main__":
    main()
