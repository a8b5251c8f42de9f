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

import pytest
from rich.console import Console

from aerobee.cli.top import drawn
from aerobee.cli.top_view import View
from tests.aerobee.cli.conftest import Call, command, environment
from tests.conftest import AnyBroker, StartBroker

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
