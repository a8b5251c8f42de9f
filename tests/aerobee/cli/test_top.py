"""`aerobee top` and tables on a terminal."""

import io
import os
import pty
import select
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console

from aerobee.admin import BrokerInfo, StatsItem, StatsWindow
from aerobee.cli.dead import DeadBroker, Look, RefusingBroker
from aerobee.cli.top import drawn, over_hour
from aerobee.cli.top_view import View
from aerobee.errors import BrokerError
from tests.aerobee.cli.conftest import Call, command, environment
from tests.conftest import AnyBroker, StartBroker

if TYPE_CHECKING:
    from aerobee.blocking import AdminClient

pytestmark = pytest.mark.service

WITHIN_S = 60
SIZE = {"COLUMNS": "160", "LINES": "50", "TERM": "xterm"}


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    """Of its own: a screen shows only so many groups."""
    return start_broker()


@contextmanager
def on_terminal(
    broker: AnyBroker, *arguments: str
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command whose output is a terminal; its process and the terminal's other end."""
    ours, its = pty.openpty()
    try:
        with subprocess.Popen(
            command(*arguments),
            stdin=its,
            stdout=its,
            stderr=its,
            env=environment(broker.namesrv_address) | SIZE,
            start_new_session=True,
        ) as child:
            os.close(its)
            try:
                yield child, ours
            finally:
                child.kill()
    finally:
        os.close(ours)


def seen(terminal: int, text: str) -> str:
    """What was printed until `text` was."""
    printed = ""
    until = monotonic() + WITHIN_S
    readable = select.poll()
    readable.register(terminal, select.POLLIN)
    while text not in printed:
        assert monotonic() < until, printed
        if readable.poll(1_000):
            printed += os.read(terminal, 65536).decode(errors="replace")
    return printed


def test_top_shows_brokers_and_groups_until_ctrl_c(
    call: Call, broker: AnyBroker, topic: str
) -> None:
    call("group", "create", f"g-{topic}")
    with on_terminal(broker, "top", "--interval", "0.2") as (child, terminal):
        seen(terminal, f"g-{topic}")
        child.send_signal(signal.SIGINT)
        assert child.wait(WITHIN_S) == 0


def test_rates_of_the_hour_are_unknown_until_there_are_some(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    call("group", "create", f"g-{topic}")
    found = call("top", "--hour", "--json").document["groups"]
    (row,) = [row for row in found if row["group"] == f"g-{topic}"]
    assert (row["in_per_s"], row["out_per_s"]) == (None, None)
    found = call("top", "--view", "topics", "--hour", "--json").document["topics"]
    assert {"topic": topic, "in_per_s": None, "bytes_per_s": None} in found


class Hours:
    """An admin client of brokers that each had one message a second for an hour."""

    def stats_item(self, name: str, key: str, broker: str) -> StatsItem:
        if key == "new":
            raise BrokerError(1, f"The stats <{name}> <{key}> not exist", broker, "", "")
        none, one = (
            StatsWindow(total=0, per_second=0.0, average=0.0),
            StatsWindow(total=3_600, per_second=1.0, average=1.0),
        )
        return StatsItem(name=name, key=key, minute=none, hour=one, day=none)


def test_rates_of_the_hour_are_those_of_all_brokers_together() -> None:
    def broker(name: str, hours: int) -> tuple[BrokerInfo, dict[str, str]]:
        info = BrokerInfo(cluster="c", name=name, broker_id=0, address=f"{name}:1")
        return info, {"runtime": f"[ 0 days, {hours} hours, 9 minutes, 59 seconds ]"}

    admin = cast("AdminClient", Hours())
    old = Look([broker("a", 1), broker("b", 2)], [], None)
    assert over_hour(admin, old, "TOPIC_PUT_NUMS", ["t", "u"]) == 4.0
    assert over_hour(admin, old, "TOPIC_PUT_NUMS", ["new"]) == 0.0
    assert over_hour(admin, Look([broker("a", 0)], [], None), "TOPIC_PUT_NUMS", ["t"]) is None
    dead = Look(old.alive[:1], [DeadBroker(old.alive[1][0], "it is gone")], None)
    assert over_hour(admin, dead, "TOPIC_PUT_NUMS", ["t"]) is None
    refusing = RefusingBroker(old.alive[1][0], BrokerError(16, "no right", "b", "b:1", ""))
    part = Look(old.alive[:1], [], None, [refusing])
    assert over_hour(admin, part, "TOPIC_PUT_NUMS", ["t"]) is None


def test_keys_choose_filter_and_quit(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic, "--queues", "1")
    with on_terminal(broker, "top", "--interval", "5") as (child, terminal):
        seen(terminal, "q quit")
        os.write(terminal, b"t")
        seen(terminal, topic)
        os.write(terminal, b"/nobody\n")
        printed = seen(terminal, "only 'nobody'")
        assert topic not in printed.rpartition("filter: nobody")[2]
        os.write(terminal, b"q")
        assert child.wait(WITHIN_S) == 0
        assert termios.tcgetattr(terminal)[3] & termios.ICANON


def test_a_terminal_gets_a_table(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic, "--queues", "1")
    with on_terminal(broker, "topic", "describe", topic) as (_, terminal):
        printed = seen(terminal, "last stored")
        assert "─" in printed
        assert "\t" not in printed


def test_the_keys_stay_on_the_screen_however_much_there_is_to_show() -> None:
    printed = io.StringIO()
    console = Console(width=100, height=30, file=printed)
    rows = [{"group": f"g{n}", "lag": n, "topics": "a-long-topic, " * 40} for n in range(100)]
    console.print(drawn([{"broker": "b"}], rows, View(), console.size))
    lines = printed.getvalue().splitlines()
    assert len(lines) <= 30
    assert "q quit" in lines[-1] or "q quit" in lines[-2]


@pytest.mark.parametrize("width", [50, 70, 80, 120])
def test_a_narrow_screen_has_fewer_columns_and_those_whole(width: int) -> None:
    printed = io.StringIO()
    console = Console(width=width, height=30, file=printed)
    numbers = {"in_per_s": 12_345.67, "out_per_s": 12_345.67, "in_today": 10**7, "disk": 0.93}
    named = {"cluster": "DefaultCluster", "broker": "broker-a", "id": 0}
    broker = {**named, "address": "192.168.100.100:10911", "version": "V5_3_2", **numbers}
    group = {"group": "billing", "members": 3, "lag": 1_234_567, "per_s": 99.5, "model": "CLUSTER"}
    group["topics"] = "Orders, %RETRY%billing"
    console.print(drawn([broker], [group], View(), console.size))
    text = printed.getvalue()
    for whole in ("broker-a", "12345.67", "1234567", "billing"):
        assert whole in text, text
    assert ("DefaultCluster" in text, "0.93" in text) == (width == 120, True)
