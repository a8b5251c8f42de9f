"""The console in front of Java's brokers: beside ours, and of a cluster that has no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, ConsumeFrom, Message, Producer, PullConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.console_client import ConsoleClient
from tests.kit.console_process import alone, known
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

WITHIN_S = 60.0
HOSTILE = "<img/src=x onerror=alert(1)>"
"""What Java takes for a name of a broker, a cluster and a group."""


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Java's name server, which takes any name of a broker."""
    running = JavaNamesrv(toolkit("5.5.0"), tmp_path_factory.mktemp("namesrv"))
    yield running.address
    running.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, namesrv: str) -> Iterator[BrokerProcess]:
    """A broker with a console."""
    data = tmp_path_factory.mktemp("ours") / "data"
    own = {"consolePort": free_port(), "brokerName": "ours", "embeddedNamesrv": "false"}
    with BrokerProcess(data=data, namesrv=namesrv, settings=own) as broker:
        yield broker


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory, namesrv: str) -> Iterator[JavaBroker]:
    """A Java broker whose names are scripts."""
    home = tmp_path_factory.mktemp("java")
    with JavaBroker(
        toolkit=toolkit("5.5.0"),
        data=home / "data",
        home=home,
        namesrv_address=namesrv,
        settings={"brokerName": HOSTILE, "brokerClusterName": HOSTILE},
    ) as broker:
        yield broker


def row_of(console: ConsoleClient, path: str, column: str, name: str) -> dict[str, Any]:
    rows = console.get(path).value
    return next((row for row in rows if row[column] == name), {})


def test_a_java_broker_is_shown_beside_ours_and_alone(
    ours: BrokerProcess, java: JavaBroker, namesrv: str, tmp_path: Path
) -> None:
    own = ConsoleClient(int(str(ours.settings["consolePort"])))
    with (
        AdminClient(namesrv) as admin,
        Producer(namesrv, group="senders") as producer,
        PullConsumer("readers", namesrv, start_from=ConsumeFrom.FIRST) as readers,
    ):
        admin.create_topic("Both", queues=2)
        admin.create_group(GroupConfig(name="readers"))
        readers.subscribe("Both")
        for _ in range(8):
            producer.send(Message("Both", b"x"))
        admin.reset_offsets("readers", "Both", 0)
        with alone(namesrv, tmp_path) as console:
            assert {row["state"] for row in known(console)} == {"up"}
            for shown in (own, console):
                check_shown(shown)
    for path in ("/", "/groups", "/topics", "/clients", "/replication", "/topic?name=Both"):
        page = own.request("GET", path).body.decode()
        assert "<img/src" not in page, path
        assert "&lt;img/src" in page, path


def check_shown(console: ConsoleClient) -> None:
    """Check that a console counts what both brokers have."""

    def whole() -> dict[str, Any]:
        topic = row_of(console, "/topics?filter=Both", "topic", "Both")
        group = row_of(console, "/groups?filter=readers", "group", "readers")
        return group if topic.get("messages") == 8 and group.get("lag") == 8 else {}

    group = eventually(whole, within_s=WITHIN_S, what="both brokers' messages are counted")
    assert group is not None
    assert (group["members"], group["topics"]) == (1, ["Both"])
    members = console.get("/clients?filter=readers").value
    assert {row["broker"] for row in members} == {"ours", HOSTILE}
    java = row_of(console, "/brokers", "broker", HOSTILE)
    assert (java["state"], java["aerobee"]) == ("up", None)
    assert java["version"].startswith("V5_5")


def test_what_a_java_broker_remarks_is_shown_as_text(ours: BrokerProcess, java: JavaBroker) -> None:
    own = ConsoleClient(int(str(ours.settings["consolePort"])))
    page = own.request("GET", "/topic?name=%3Cimg%2Fsrc%3Dx%3E").body.decode()
    assert "<img/src=x>" not in page
    assert "&lt;img/src=x&gt;" in page


def test_a_java_broker_that_dies_is_shown_as_that(ours: BrokerProcess, java: JavaBroker) -> None:
    own = ConsoleClient(int(str(ours.settings["consolePort"])))
    java.kill()

    def dead() -> bool:
        return row_of(own, "/brokers", "broker", HOSTILE).get("state") == "dead"

    eventually(dead, within_s=WITHIN_S, what="the Java broker is dead")
    assert own.get("/findings").value[0]["kind"] == "broker_unreachable"
    assert row_of(own, "/groups?filter=readers", "group", "readers")["lag"] is None
    page = own.request("GET", "/groups").body.decode()
    assert "do not tell it" in page
    assert "<img/src" not in page
