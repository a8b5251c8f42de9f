"""R19: a broker is told to stop in the middle of its work: a clean directory, no promise broken."""

import signal

import pytest

from tests.conftest import StartBroker
from tests.faults.kills import SHAPE, SMALL_LOG
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import History
from tests.kit.load import Load, Reader

pytestmark = [pytest.mark.faults, pytest.mark.ours]

STOPS_WITHIN_S = 5.0
ELSEWHERE = ("14:", "1500:")
"""What sends a producer to another broker: SERVICE_NOT_AVAILABLE, or GO_AWAY."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_stop_under_load_is_clean_and_loses_nothing(
    flush: str, number: signal.Signals, start_broker: StartBroker
) -> None:
    broker = start_broker(flushDiskType=flush, **SMALL_LOG)
    assert isinstance(broker, BrokerProcess)
    history = History()
    load = Load(broker.address, history, seed="stop", shape=SHAPE)
    load.wait_for_acks(500, within_s=30)
    broker.child.signal(number)
    code = broker.child.wait(within_s=STOPS_WITHIN_S)
    load.join()
    assert code == 0, broker.child.errors()
    assert all(refusal.startswith(ELSEWHERE) for refusal in load.refused), load.refused
    assert not (broker.data / "abort").exists()

    assert broker.start().recovered == "clean"
    history.check(Reader(SHAPE).read_on(broker.address))
    broker.kill()


def test_a_second_signal_ends_it_now_and_loses_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(flushDiskType="SYNC_FLUSH", **SMALL_LOG)
    assert isinstance(broker, BrokerProcess)
    history = History()
    load = Load(broker.address, history, seed="twice", shape=SHAPE)
    load.wait_for_acks(200, within_s=30)
    broker.child.signal(signal.SIGTERM)
    broker.child.signal(signal.SIGINT)
    broker.child.wait(within_s=STOPS_WITHIN_S)
    load.join()
    broker.start()
    history.check(Reader(SHAPE).read_on(broker.address))
    broker.kill()
