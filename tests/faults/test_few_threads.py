"""A system that gives no more threads, as a full limit on the processes of a user or container."""

from pathlib import Path

import httpx
import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.odd_broker import without_threads
from tests.kit.ports import HOST
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, send_fields

pytestmark = pytest.mark.faults

SEND = 310


def test_a_broker_does_with_the_worker_in_reserve(tmp_path: Path) -> None:
    """It is the only one that the system gives, from the start to the stop."""
    data = tmp_path / "data"
    with BrokerProcess(data=data, module=without_threads("Trio thread", 1)) as broker:
        with RawConnection(broker.address, timeout_s=60) as client:
            for number in range(100):
                answer = client.call(SEND, send_fields("T", number % 4), b"x" * 1_000)
                assert answer.code == 0, answer
        assert httpx.get(f"http://{HOST}:{broker.ports.metrics}/readyz", timeout=30).is_success
        assert broker.restart().recovered == "clean"
        assert broker.stop() == 0
    log = broker.log.read_text()
    assert "threads.none_left" in log
    assert "ulimit -u" in log
    assert "Traceback" not in log


def test_a_start_without_a_thread_says_which_limit(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data", module=without_threads("signals", 0))
    with pytest.raises(DidNotStart):
        broker.start()
    assert "broker.refused" in broker.log.read_text().splitlines()[-1]
    assert "TasksMax" in broker.log.read_text()
    assert "Traceback" not in broker.log.read_text()
