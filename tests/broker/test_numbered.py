"""A member whose controllers are away: its start waits for them, for as long as nobody stops it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ours


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_for_the_controllers_is_stopped_like_any(
    tmp_path: Path, number: signal.Signals
) -> None:
    settings = {
        "enableControllerMode": "true",
        "controllerAddr": "127.0.0.1:1",
        "haPeers": "127.0.0.1",
        "haListenPort": free_port(),
    }
    broker = BrokerProcess(data=tmp_path / "data", settings=settings)
    child = broker.launch()
    try:
        eventually(
            lambda: "failover.no_number" in broker.log.read_text(),
            within_s=60,
            what="it waits for a controller",
        )
        child.signal(number)
        assert child.wait(within_s=60) == 0
    finally:
        child.kill()
