"""The port of the console: by default it is given up where somebody has it, set it is not."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.console_client import ConsoleClient
from tests.kit.health import events
from tests.kit.ports import free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection
from tests.kit.supervised import Supervised
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BY_DEFAULT = 8_088


@pytest.fixture
def taken() -> Iterator[None]:
    """Somebody has the port by default: this test, else another process of the machine."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", BY_DEFAULT)))
        yield


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("kind", [BrokerProcess, Supervised])
def test_a_taken_port_by_default_costs_the_console_alone(
    tmp_path: Path, kind: type[BrokerProcess]
) -> None:
    with kind(data=tmp_path / "data", settings={"consolePort": None}) as broker:
        with RawConnection(broker.address) as client:
            assert client.call(RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS
        log = broker.log.read_text()
    [reason] = [
        str(event["reason"]) for event in events(log) if event["event"] == "console.port_taken"
    ]
    assert f"127.0.0.1:{BY_DEFAULT}" in reason
    assert "set consolePort to another port, or to 0 for none" in reason


@pytest.mark.usefixtures("taken")
def test_a_taken_port_that_is_set_refuses_the_start(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data", settings={"consolePort": BY_DEFAULT})
    with pytest.raises(DidNotStart, match="set consolePort to another port"), broker:
        pass


def test_a_console_that_cannot_be_loaded_costs_the_console_alone(tmp_path: Path) -> None:
    """As once another version is installed: the first look at the console ended the broker."""
    (tmp_path / "jinja2.py").write_text('raise ImportError("that of another version")\n')
    port, place = free_port(), {"PYTHONPATH": str(tmp_path)}
    broker = BrokerProcess(data=tmp_path / "data", settings={"consolePort": port}, env=place)
    with broker:
        with pytest.raises((OSError, HTTPException)):
            ConsoleClient(port, None).get("/overview")

        def ended() -> list[dict[str, object]]:
            found = events(broker.log.read_text())
            return [event for event in found if event["event"] == "console.ended"]

        eventually(ended, within_s=60.0, what="the end of the console in the log")
        assert "that of another version" in str(ended()[0]["reason"])
        with RawConnection(broker.address) as client:
            assert client.call(RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS
