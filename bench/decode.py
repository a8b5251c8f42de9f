"""The cost of decoding stored records into Arrow batches, on one core, without Spark and sockets.

    python -m bench.decode

One table: the columns, rows per batch, million records per second (the best of many short runs,
since the machine is shared) and ns per record. Records are as Java producers leave them: 397 bytes,
206 of them body, five properties. Last line: the same records one by one, for comparison.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from aerobee.spark.rows.columns import COLUMNS, DEFAULT
from aerobee.spark.rows.decode import Decoder, starts_of
from aerobee.store.format import properties, record
from bench.arguments import program
from bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 50_000
RUNS = 12
SEED = 6
BODY_BYTES = 206
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
WITHOUT_MAP = tuple(name for name in DEFAULT if name != "properties")
WITHOUT_ANY = tuple(name for name in WITHOUT_MAP if name not in ("keys", "tags"))
BODIES = ("queueOffset", "storeTimestamp", "body")


class Case(NamedTuple):
    """One line of the table."""

    name: str
    columns: tuple[str, ...]
    batch_rows: int
    target: float | None = None
    """Million records per second."""


CASES = (
    *(Case("default columns", DEFAULT, rows, 1.2) for rows in (2_000, 10_000, 50_000)),
    *(Case("without properties", WITHOUT_MAP, rows) for rows in (2_000, 10_000, 50_000)),
    Case("without properties, keys and tags", WITHOUT_ANY, 10_000, 2.0),
    Case("queueOffset, storeTimestamp, body", BODIES, 10_000),
    Case("all 21 columns", tuple(COLUMNS), 10_000),
)


def log_of(count: int) -> bytes:
    """Records one after the other, bodies of 106 to 306 bytes."""
    random = Random(SEED)
    log = bytearray()
    for number in range(count):
        named = {
            "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
            "WAIT": "true",
            "TAGS": f"Tag{'ABC'[number % 3]}",
            "KEYS": f"order-{number:06}",
            "CLUSTER": "DefaultCl",
        }
        draft = record.MessageDraft(
            "Orders",
            1,
            random.randbytes(random.randint(BODY_BYTES - 100, BODY_BYTES + 100)),
            properties.encode(named).encode(),
            HOST,
            HOST,
            born_timestamp=1_700_000_000_000 + number,
        )
        log += record.encode(draft, number, len(log), 1_700_000_000_001 + number)
    return bytes(log)


def best_s(work: Callable[[], int]) -> float:
    """Seconds of the quickest run; each must see every record."""
    quickest = float("inf")
    for _ in range(RUNS):
        began = perf_counter()
        seen = work()
        quickest = min(quickest, perf_counter() - began)
        assert seen == RECORDS, seen
    return quickest


def decoded(decoder: Decoder, log: bytes) -> int:
    """Rows of all batches; each is dropped before the next, as a reader does."""
    return sum(batch.num_rows for batch in decoder.batches(log))


def one_by_one(log: bytes) -> int:
    """The same fields into tuples, without numpy and Arrow."""
    rows = []
    for one in record.records([log]):
        named = properties.decode(one.properties)
        place = (one.topic, None, one.queue_id, one.queue_offset)
        times = (one.born_timestamp, one.store_timestamp)
        rows.append((*place, named.get("KEYS"), named.get("TAGS"), one.body, *times, named))
    return len(rows)


@program
def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.decode").parse_args()
    log = log_of(RECORDS)
    libraries = f"numpy {version('numpy')}, pyarrow {version('pyarrow')}"
    print(f"{describe()}, {libraries}, seed {SEED}")
    print(f"{RECORDS} records of {len(log) / RECORDS:.0f} bytes")
    print(f"{'columns':<36}{'rows/batch':>11}{'M/s':>7}{'ns':>7}{'target':>8}")
    for case in CASES:
        decoder = Decoder(case.columns, broker_name="broker-a", batch_rows=case.batch_rows)
        line(case.name, case.batch_rows, best_s(partial(decoded, decoder, log)), case.target)
    line("the walk alone", RECORDS, best_s(lambda: len(starts_of(log))))
    line("one by one", RECORDS, best_s(lambda: one_by_one(log)))


def line(name: str, rows: int, seconds: float, target: float | None = None) -> None:
    """One line of the table."""
    per_s = RECORDS / seconds / 1e6
    wanted = "" if target is None else f"{target:.1f}"
    print(f"{name:<36}{rows:>11,}{per_s:>7.2f}{1e3 / per_s:>7.0f}{wanted:>8}", flush=True)


if __name__ == "__main__":
    main()
