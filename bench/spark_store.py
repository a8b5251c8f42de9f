"""The rate of reading and auditing a store directory, in MB of log per second; one task slot.

    python -m bench.spark_store [--alone] [MIB]

A log with 256-byte bodies and six properties, its consume queues, 8 queues in all. First without
Spark (`--alone` ends there), by CPU time, then the whole way: default columns to a sink that drops
the rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.spark.options import store_options
from aerobee.spark.rows.columns import DEFAULT
from aerobee.spark.storefiles.audit import audit, plan_audit
from aerobee.spark.storefiles.files import Passage, SegmentFile
from aerobee.spark.storefiles.read import plan, read
from aerobee.spark.storefiles.segments import Split
from aerobee.store.format import properties, record
from aerobee.store.format.names import segment_name
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT
from bench.arguments import program, whole
from bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from aerobee.spark.options import StoreOptions

MiB = 1 << 20
SEGMENT_BYTES = 64 * MiB
QUEUES = 8
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
BODY = bytes(range(256))
SCAN_MB_S, AUDIT_MB_S = 120, 80
"""The targets: rates at least."""
RUNS = 3


def make_store(root: Path, log_bytes: int) -> tuple[int, int]:
    """Write a store; how many records it has, and bytes of them."""
    units: list[bytearray] = [bytearray() for _ in range(QUEUES)]
    at = count = 0
    segment = bytearray()
    (root / "commitlog").mkdir(parents=True)
    while at < log_bytes:
        text = properties.encode(
            {
                "TAGS": "abcd"[count % 4],
                "KEYS": f"order-{count}",
                "UNIQ_KEY": f"7F000001AAAA18B4AAC2{count:012X}",
                "WAIT": "true",
                "CLUSTER": "DefaultCluster",
                "region": "south",
            }
        ).encode()
        queue_id = count % QUEUES
        draft = record.MessageDraft("orders", queue_id, BODY, text, HOST, HOST)
        size = len(record.encode(draft, 0, 0, 0))
        if len(segment) + size + record.BLANK_BYTES > SEGMENT_BYTES:
            rest = SEGMENT_BYTES - len(segment)
            _write(root, at, segment + record.blank(rest))
            at += rest
            segment = bytearray()
        segment += record.encode(draft, count // QUEUES, at, 1_700_000_000_000 + count // 50)
        units[queue_id] += UNIT.pack(at, size, tags_code_of(text))
        at += size
        count += 1
    _write(root, at, segment)
    for queue_id, data in enumerate(units):
        directory = root / "consumequeue" / "orders" / str(queue_id)
        directory.mkdir(parents=True)
        for start in range(0, len(data), 6_000_000):
            piece = bytes(data[start : start + 6_000_000])
            (directory / segment_name(start)).write_bytes(piece.ljust(6_000_000, b"\0"))
    return count, at


def _write(root: Path, end: int, data: bytes | bytearray) -> None:
    start = end - end % SEGMENT_BYTES
    path = root / "commitlog" / segment_name(start)
    path.write_bytes(bytes(data).ljust(SEGMENT_BYTES, b"\0"))


def timed(work: Callable[[], int]) -> tuple[float, int]:
    """CPU seconds of the best of some runs, and what it counted.

    Not of the clock: one thread works, on pages that are in memory, on a machine that is shared.
    """
    best, counted = float("inf"), 0
    for _ in range(RUNS):
        began = time.process_time()
        counted = work()
        best = min(best, time.process_time() - began)
    return best, counted


def show(what: str, seconds: float, rows: int, log_bytes: int, target: int | None = None) -> None:
    """One line of the table."""
    goal = "" if target is None else f"   target {target} MB/s"
    speed = log_bytes / seconds / 1e6
    print(f"{what:<36} {speed:8.0f} MB/s {rows / seconds:12,.0f} records/s{goal}", flush=True)


def alone(root: Path, count: int, log_bytes: int) -> None:
    """Without Spark."""
    options = store_options({"path": str(root)})
    checking = store_options({"path": str(root), "verifyCrc": "true"})
    looking = store_options({"path": str(root), "mode": "audit"})

    def walk() -> int:
        found = 0
        for split in plan(options):
            assert isinstance(split, Split)
            with SegmentFile(split.segment) as file:
                found += sum(len(fragment.names) for fragment in Passage(file, split))
        return found

    def rows(given: StoreOptions) -> Callable[[], int]:
        return lambda: sum(
            batch.num_rows for piece in plan(given) for batch in read(piece, given, DEFAULT)
        )

    by_queue = store_options({"path": str(root), "via": "consumequeue"})
    for what, work in (
        ("walk", walk),
        ("read", rows(options)),
        ("read, verifyCrc", rows(checking)),
        ("read, via=consumequeue", rows(by_queue)),
    ):
        seconds, found = timed(work)
        assert found == count, (what, found, count)
        show(what, seconds, count, log_bytes)
    seconds, found = timed(
        lambda: sum(1 for piece in plan_audit(looking) for _ in audit(piece, looking))
    )
    assert found == 0
    show("audit", seconds, count, log_bytes)


def with_spark(root: Path, scratch: Path, count: int, log_bytes: int) -> None:
    """As a query, planning and all."""
    from bench.spark_session import cost_of, measuring_session

    with measuring_session(scratch) as spark:
        log = spark.read.format("aerobee.store").load(str(root))
        assert log.count() == count
        faults = spark.read.format("aerobee.store").option("mode", "audit").load(str(root))
        for what, query, target in (
            ("Spark: read to a noop sink", lambda: _drain(log), SCAN_MB_S),
            ("Spark: count()", log.count, None),
            ("Spark: audit", faults.count, AUDIT_MB_S),
        ):
            cost = cost_of(query, RUNS)
            show(what, cost.wall_s, count, log_bytes, target)
            show("  by CPU of JVM and worker", cost.cpu_s, count, log_bytes)


def _drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_store")
    parser.add_argument("mib", type=whole, nargs="?", default=256)
    parser.add_argument("--alone", action="store_true", help="without Spark")
    given = parser.parse_args()
    log_bytes = given.mib * MiB
    libraries = " ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "pyspark"))
    print(f"{describe()}, {libraries}")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        count, log_bytes = make_store(root, log_bytes)
        print(f"{count:,} records, {log_bytes / 1e6:.0f} MB of log")
        alone(root, count, log_bytes)
        if not given.alone:
            with_spark(root, Path(directory), count, log_bytes)


if __name__ == "__main__":
    main()
