"""A copy of the directory of a broker that is held still, as docs/operations/backup.md makes it."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from aerobee.store.tools.verify import verify
from tests.faults.kills import SHAPE, SMALL_LOG
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import History
from tests.kit.load import Load, Reader

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartBroker

pytestmark = [pytest.mark.faults, pytest.mark.ours]


def test_a_copy_of_a_broker_held_still_under_load_has_all_that_was_acknowledged(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(flushDiskType="ASYNC_FLUSH", **SMALL_LOG)
    assert isinstance(broker, BrokerProcess)
    history = History()
    load = Load(broker.address, history, seed="backup", shape=SHAPE)
    load.wait_for_acks(1_000, within_s=30)
    broker.child.signal(signal.SIGSTOP)
    copied = ["cp", "-a", "--sparse=always", str(broker.data), str(tmp_path / "copy")]
    subprocess.run(copied, check=True, timeout=60)
    held = history.tick
    broker.child.signal(signal.SIGCONT)
    load.wait_for_acks(len(history.acknowledged) + 100, within_s=30)
    broker.kill()
    load.join()
    assert load.refused == [], "clients wait, and nothing more"

    assert verify(tmp_path / "copy").sound
    with BrokerProcess(data=tmp_path / "copy", settings=broker.settings) as restored:
        assert restored.ready is not None
        assert restored.ready.recovered != "clean"
        history.as_of(held).check(Reader(SHAPE).read_on(restored.address))
