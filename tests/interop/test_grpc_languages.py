"""RocketMQ 5's clients in Java, Node and Go over gRPC."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import GroupConfig, MessageType
from aerobee.blocking import AdminClient
from tests.kit import golang
from tests.kit.ports import HOST, kept_port
from tests.kit.rounds import LANGUAGES, Round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.interop

PORT = kept_port()
COUNT = 10
FEATURE_WITHIN_S = 120.0
TYPES = {name: MessageType[name.upper()] for name in ("Fifo", "Delay", "Transaction")}


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker(grpcPort=PORT, transactionTimeOut=1_000, transactionCheckInterval=1_000)
    with AdminClient(broker.namesrv_address) as admin:
        for topic, kind in TYPES.items():
            admin.create_topic(topic, queues=2, message_type=kind)
        admin.create_group(GroupConfig(name="go-fifo", orderly=True))
    return broker


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_gets_what_it_sent_and_again_what_it_refused(
    broker: AnyBroker, language: str, tmp_path: Path
) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(language, queues=2, message_type=MessageType.NORMAL)
    running = Round(language, tmp_path, f"{HOST}:{PORT}", language, COUNT)
    with running.child:
        assert running.until(1, "sent") == [str(COUNT)]
        received = sorted(line.split() for line in running.until(COUNT, "received"))
        pushed = [line.split() for line in running.until(COUNT + 1, "pushed")]
        running.end()

    assert [line[:3] for line in received] == [
        [f"body-{number}", language, f"k{number}"] for number in range(COUNT)
    ]
    assert {line[-1] for line in received} == {"1"}
    attempts = sorted((line[0], line[-1]) for line in pushed)
    assert attempts == sorted(
        [*((f"body-{number}", "1") for number in range(COUNT)), ("body-0", "2")]
    )


def told_by_go(feature: str) -> list[str]:
    """What Go's client says of one feature."""
    command = [str(golang.program("go5")), f"{HOST}:{PORT}", feature]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FEATURE_WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "end"
    return lines[:-1]


def test_go_gets_the_messages_of_a_group_in_their_order(broker: AnyBroker) -> None:
    assert told_by_go("fifo") == [f"got {number}" for number in range(5)]


def test_go_gets_a_delayed_message_at_its_time(broker: AnyBroker) -> None:
    assert told_by_go("delay") == ["got late", "not before true"]


def test_transactions_of_go_end_as_it_says_or_answers(broker: AnyBroker) -> None:
    lines = told_by_go("transactions")
    assert "check open" in lines
    assert sorted(line for line in lines if line.startswith("got")) == ["got commit", "got open"]
