"""The parts of a broker as metrics and probes see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.consumers.clients import Client, ClientTable
from aerobee.broker.metrics.figures import ClientKind
from aerobee.broker.metrics.sources import consumer_kinds, producer_kinds

if TYPE_CHECKING:
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


@dataclass
class FakeConnection:
    id: int
    address: str = "127.0.0.1:1"
    host: bytes = b""
    accounts: frozenset[str] = frozenset()
    paused: bool = False
    requests: int = 0

    def notify(self, code: int, header: Header | None, body: bytes = b"") -> None:
        raise AssertionError("nobody is told")

    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command:
        raise AssertionError("nobody is asked")

    def close(self, reason: str) -> None:
        raise AssertionError("nobody is closed")


def client(number: int, language: str = "JAVA") -> Client:
    return Client(FakeConnection(number), f"c{number}", language, 479, 0)


def test_producers_are_counted_per_group_and_connection() -> None:
    table = ClientTable()
    table.register_producer("p1", client(1))
    table.register_producer("p2", client(1))
    table.register_producer("p1", client(2, "GO"))
    assert sorted(producer_kinds(table)) == [
        (ClientKind("GO", 479), 1),
        (ClientKind("JAVA", 479), 2),
    ]


@pytest.mark.parametrize(
    ("consume_type", "mode"),
    [
        ("CONSUME_PASSIVELY", "push"),
        ("CONSUME_ACTIVELY", "pull"),
        ("CONSUME_POP", "pop"),
        ("CONSUME_BY_LOT", "other"),
    ],
)
def test_consumers_are_named_by_how_they_consume(consume_type: str, mode: str) -> None:
    table = ClientTable()
    table.register_consumer(
        "g",
        client(1),
        consume_type=consume_type,
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=None,
    )
    assert list(consumer_kinds(table)) == [(ClientKind("JAVA", 479, "g", mode), 1)]


def test_a_language_that_nobody_knows_is_no_label() -> None:
    table = ClientTable()
    table.register_producer("p", client(1, "x" * 30_000))
    assert list(producer_kinds(table)) == [(ClientKind("OTHER", 479), 1)]
