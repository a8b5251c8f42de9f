"""Two masters of one name at a name server: the second one says so, and each keeps what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.replicas import CREATE_TOPIC, SEND, stored_messages
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]


def send(broker: BrokerProcess, body: bytes) -> None:
    with RawConnection(broker.address) as connection:
        assert connection.call(SEND, send_fields("t", 0), body).code == 0


def with_topic(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0


def test_the_second_of_two_masters_says_so_and_neither_loses_anything(tmp_path: Path) -> None:
    ours = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    first = BrokerProcess(data=tmp_path / "first", settings=ours)
    # An empty one does not start at all where a slave has messages.
    second = BrokerProcess(data=tmp_path / "second", settings=ours, log_path=tmp_path / "log")
    with second:
        with_topic(second)
        send(second, b"second, alone")
    second.settings = ours | {"namesrvAddr": first.namesrv_address}
    with first:
        with_topic(first)
        send(first, b"first")
        second.start()
        try:
            eventually(
                lambda: "replication.two_masters" in second.log.read_text(),
                within_s=60,
                what="the word of the second one",
            )
            send(first, b"first, beside it")
            send(second, b"second, beside it")
        finally:
            second.kill()
    bodies = {
        "first": [message.body for message in stored_messages(first.data, "t")],
        "second": [message.body for message in stored_messages(second.data, "t")],
    }
    assert bodies == {
        "first": [b"first", b"first, beside it"],
        "second": [b"second, alone", b"second, beside it"],
    }
