"""RocketMQ 5's clients in Java and Node over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.admin import MessageType
from aerobee.blocking import AdminClient
from tests.kit.ports import HOST, free_port
from tests.kit.rounds import LANGUAGES, Round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.interop

PORT = free_port()
COUNT = 10


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(grpcPort=PORT)


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
