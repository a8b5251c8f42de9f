"""Stores with messages that are known one by one, and what an archive has of them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kit.raw_client import RawConnection, batch_body, properties_text, send_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import AnyBroker

SEGMENT_BYTES = 128 << 10
SEND, SEND_BATCH = 310, 320
COMPRESSED = 1
PER_REQUEST = 50


class Message(NamedTuple):
    """One message as it was sent."""

    topic: str
    queue_id: int
    body: bytes
    msg_id: str
    keys: str
    tags: str


def messages(topic: str, queue_id: int, count: int, *, first: int = 0) -> list[Message]:
    """So many different ones, of some 500 bytes."""
    made = []
    for number in range(first, first + count):
        name = f"{topic}-{queue_id}-{number}"
        body = f"{name} ".encode() + bytes(
            (number * 7 + at) % 256 for at in range(300 + number % 99)
        )
        made.append(Message(topic, queue_id, body, f"ID{name}", f"k{number}", "ab"[number % 2]))
    return made


def talk(broker: AnyBroker, said: Sequence[Message]) -> None:
    """Store messages of one queue, in their order; each acknowledged."""
    with RawConnection(broker.address) as connection:
        for at in range(0, len(said), PER_REQUEST):
            part = said[at : at + PER_REQUEST]
            fields = send_fields(part[0].topic, part[0].queue_id, m=True)
            texts = {one.body: text_of(one) for one in part}
            answer = connection.call(SEND_BATCH, fields, batch_body(texts))
            assert answer.code == 0, answer.remark


def say(
    broker: AnyBroker,
    one: Message,
    *,
    compressed: bool = False,
    more: Mapping[str, str] | None = None,
) -> None:
    """Store one message, with more properties."""
    body = zlib.compress(one.body) if compressed else one.body
    text = text_of(one) + properties_text(**(more or {}))
    fields = send_fields(one.topic, one.queue_id, f=COMPRESSED * compressed, i=text)
    with RawConnection(broker.address) as connection:
        answer = connection.call(SEND, fields, body)
    assert answer.code == 0, answer.remark


def text_of(one: Message) -> str:
    """Its properties, one of the user's among them."""
    return properties_text(UNIQ_KEY=one.msg_id, KEYS=one.keys, TAGS=one.tags, colour="blue")


def sealed(data: Path) -> list[int]:
    """The starts of the full segments of a store."""
    return sorted(int(path.name) for path in (data / "commitlog").iterdir())[:-1]


def archived(spark: SparkSession, output: Path) -> DataFrame:
    """All that anybody reads who is given the path of an archive."""
    return spark.read.parquet(str(output))


def as_sent(rows: Iterable[Any]) -> list[Message]:
    """Rows of an archive as the messages they were, in the order of topic, queue and offset."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
    return [
        Message(
            row["topic"],
            row["queueId"],
            bytes(row["body"]),
            row["msgId"],
            row["keys"],
            row["tags"],
        )
        for row in ordered
    ]
