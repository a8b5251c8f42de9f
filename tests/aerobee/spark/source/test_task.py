"""What a task does between the connection and Spark; what it reads is tested with its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.errors import RecordDamagedError
from aerobee.spark.options import ReadOptions, read_options
from aerobee.spark.source import task
from aerobee.spark.source.fetcher import Chunk
from aerobee.spark.source.plan import Range
from aerobee.spark.source.task import gathered, pulling, record_batches, tags_of
from tests.aerobee.spark.filling import bodies, fill, make_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartBroker

RECORD = 10


def options(**given: str) -> ReadOptions:
    named = {"nameserver": "127.0.0.1:1", "topic": "orders", "group": "g"} | given
    return read_options(named, stream=False)


def chunks(*counts: int) -> list[Chunk]:
    """Chunks of so many records, of which each says which it is."""
    made, number = [], 0
    for count in counts:
        buffer = b"".join(b"%010d" % (number + at) for at in range(count))
        made.append(Chunk(number, buffer, [at * RECORD for at in range(count)]))
        number += count
    return made


@pytest.mark.parametrize(
    ("counts", "rows", "size_bytes", "sizes"),
    [
        ((3, 3, 3), 6, 1000, [6, 3]),
        ((3, 3, 3), 5, 1000, [3, 3, 3]),
        ((3, 3, 3), 100, 60, [6, 3]),
        ((3, 20, 1), 10, 1000, [3, 20, 1]),
        ((1,), 1, 1, [1]),
        ((), 1, 1, []),
    ],
)
def test_answers_are_put_together_to_batches(
    counts: tuple[int, ...], rows: int, size_bytes: int, sizes: list[int]
) -> None:
    found = list(gathered(chunks(*counts), rows, size_bytes))
    assert [len(chunk.starts) for chunk in found] == sizes
    numbers = [int(chunk.buffer[at : at + RECORD]) for chunk in found for at in chunk.starts]
    assert numbers == list(range(sum(counts)))
    assert [chunk.first_offset for chunk in found] == [
        sum(sizes[:before]) for before in range(len(sizes))
    ]


def test_tags_are_checked_again_and_conditions_are_not() -> None:
    assert tags_of(options()) is None
    assert tags_of(options(tags=" a || b||")) == frozenset({"a", "b"})
    assert tags_of(options(subexpression="a > 1", expressiontype="SQL92")) is None


def test_a_pull_is_as_the_options_say() -> None:
    how = pulling(options(pulltimeoutms="7", pullwindow="2", pullbatchsize="5"))
    assert (how.group, how.timeout_ms, how.window, how.batch_size) == ("g", 7, 2, 5)
    assert how.dense
    assert not pulling(options(tags="a")).dense
    assert not pulling(options(expressiontype="SQL92")).dense


def test_several_ranges_come_one_after_the_other(start_broker: StartBroker) -> None:
    broker = start_broker(brokerName="broker-a")
    make_topic(broker, "orders", 2)
    for queue_id in (0, 1):
        fill(broker, "orders", bodies(5), queue_id=queue_id)
    ranges = [Range("orders", "broker-a", (broker.address,), queue_id, 1, 3) for queue_id in (1, 0)]
    asked = options(nameserver=broker.namesrv_address)
    found = [
        row
        for batch in record_batches(ranges, asked, ("queueId", "queueOffset", "brokerName"))
        for row in batch.to_pylist()
    ]
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [
        (1, 1),
        (1, 2),
        (0, 1),
        (0, 2),
    ]
    assert {row["brokerName"] for row in found} == {"broker-a"}


def test_a_damaged_record_is_named_by_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(what: Range, *_: object) -> Iterator[Chunk]:
        yield Chunk(what.start, bytes(100), [0])

    monkeypatch.setattr(task, "pulled", damaged)
    what = Range("orders", "broker-a", ("127.0.0.1:1",), 3, 7, 9)
    place = "queue 3 of topic orders on broker broker-a, messages from offset 7 on: no whole record"
    with pytest.raises(RecordDamagedError, match=place):
        list(record_batches([what], options(), ("body",)))
