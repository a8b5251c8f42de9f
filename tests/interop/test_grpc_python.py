"""The official Python client of RocketMQ 5 at our gRPC port, every feature once."""

from __future__ import annotations

import functools
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import GroupConfig, MessageType
from aerobee.blocking import AdminClient
from tests.kit import python_client
from tests.kit.pages import OPERATIONS
from tests.kit.ports import HOST, kept_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.interop

TYPES = {name: MessageType[name.upper()] for name in ("Normal", "Fifo", "Delay", "Transaction")}
VERSIONS = pytest.mark.parametrize("version", ["5.0.9", python_client.VERSION])
"""The newest client, and the oldest one with a push consumer that is still installed a lot."""
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ENDPOINTS = "127.0.0.1:8081"
WITHIN_S = 120.0
PORT = kept_port()
told = functools.partial(python_client.told, f"{HOST}:{PORT}")


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker(
        grpcPort=PORT,
        recallMessageEnable="true",
        transactionTimeOut=1_000,
        transactionCheckInterval=1_000,
    )
    with AdminClient(broker.namesrv_address) as admin:
        for topic, kind in TYPES.items():
            admin.create_topic(topic, queues=2, message_type=kind)
        admin.create_group(GroupConfig(name="fifo", orderly=True))
    return broker


@VERSIONS
def test_a_simple_consumer_gets_what_it_asks_for(broker: AnyBroker, version: str) -> None:
    lines = told("simple", version=version)
    got = sorted(line[1:] for line in lines if line[0] == "got")
    # 5.0.9 reads neither keys nor properties of a message that has some.
    shown = version != "5.0.9"
    assert got == [
        [f"body-{n}", "a", [f"key-{n}"] * shown, {"colour": "red"} if shown else {}]
        for n in range(3)
    ]
    assert [line for line in lines if line[0] != "got"] == [
        *[["sent", True]] * 3,
        ["in time", True],
    ]


@VERSIONS
def test_a_push_consumer_gets_again_what_it_refused(broker: AnyBroker, version: str) -> None:
    lines = told("push", version=version)
    assert ["in time", True] in lines
    mine = [line for line in lines if line[:2] == ["got", "twice"]]
    assert mine == [["got", "twice", 1], ["got", "twice", 2]]


@VERSIONS
def test_the_messages_of_a_group_come_in_their_order(broker: AnyBroker, version: str) -> None:
    lines = told("fifo", version=version)
    assert lines == [*(["got", str(number), 1] for number in range(5)), ["in time", True]]


@VERSIONS
def test_delayed_messages_come_in_time_and_recalled_ones_never(
    broker: AnyBroker, version: str
) -> None:
    lines = told("delay", version=version)
    assert lines == [
        ["recalled", True],
        ["got", "late", 1],
        ["in time", True],
        ["not before", True],
    ]


@VERSIONS
def test_transactions_end_as_their_producer_says_or_answers(
    broker: AnyBroker, version: str
) -> None:
    lines = told("transactions", version=version)
    assert ["in time", True] in lines
    assert ["check", "open"] in lines
    assert Counter(line[1] for line in lines if line[0] == "got") == Counter(["commit", "open"])


def printed_by(page: Path) -> str:
    """What the program for the official client prints that stands on a page."""
    programs = PYTHON.findall(page.read_text("utf-8"))
    (program,) = (text for text in programs if "from rocketmq import" in text)
    assert ENDPOINTS in program
    command = [str(python_client.interpreter()), "-c", program.replace(ENDPOINTS, f"{HOST}:{PORT}")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_the_first_program_of_the_page_sends_and_receives(broker: AnyBroker) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic("Orders", message_type=MessageType.NORMAL)
    assert "b'hello'" in printed_by(OPERATIONS / "grpc.md")


def test_the_program_of_the_readme_sends(broker: AnyBroker) -> None:
    """To the topic that its steps have made with the command line, so without a type."""
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic("TopicTest")
    assert re.fullmatch(r"[0-9A-F]{34}\n", printed_by(OPERATIONS.parents[1] / "README.md"))
