"""The port of the console: by default it is given up where somebody has it, set it is not."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection
from tests.kit.supervised import Supervised

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
