"""A directory without its tables is refused, and the printed command goes on with what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from aerobee.blocking import AdminClient, ConsumeFrom, Message, Producer, PullConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events
from tests.kit.process import DidNotStart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = re.compile(r"(mkdir -p .*)")
COUNT = 12
REFUSED = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Stopped, with messages of a topic; its directory has a blank in its name."""
    broker = BrokerProcess(data=tmp_path / "my data")
    with broker:
        with Producer(broker.namesrv_address, group="g") as producer:
            for number in range(COUNT):
                producer.send(Message("Lost", b"%d" % number))
        assert broker.stop() == 0
    yield broker
    if broker.ready is not None:
        broker.kill()


def refusal(broker: BrokerProcess) -> str:
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert refused.value.exit_code == REFUSED
    return str(list(events(broker.log.read_text()))[-1]["reason"])


def received(broker: BrokerProcess) -> int:
    with PullConsumer("all", broker.namesrv_address, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("Lost")
        return sum(1 for _, _ in zip(range(COUNT), consumer, strict=False))


@pytest.mark.parametrize("killed_since", [False, True])
def test_tables_that_are_gone_are_no_new_ones(broker: BrokerProcess, killed_since: bool) -> None:
    if killed_since:
        broker.start()
        broker.kill()
    config, aside = broker.data / "config", broker.data.parent / "aside"
    config.rename(aside)
    reason = refusal(broker)
    assert str(config) in reason
    assert "queues of Lost:" in reason
    assert not config.exists(), "a refusal leaves nothing that the next start takes for tables"
    assert refusal(broker) == reason
    aside.rename(config)
    broker.start()
    assert received(broker) == COUNT


def test_the_printed_command_goes_on_with_the_topics_of_the_queues(broker: BrokerProcess) -> None:
    shutil.rmtree(broker.data / "config")
    found = COMMAND.search(refusal(broker))
    assert found is not None
    subprocess.run(["sh", "-c", found[1]], check=True)
    broker.start()
    with AdminClient(broker.namesrv_address) as admin:
        assert "Lost" in admin.topics()
    assert received(broker) == COUNT


def test_a_kill_before_the_first_save_is_no_loss(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        with Producer(broker.namesrv_address, group="g") as producer:
            producer.send(Message("Lost", b"x"))
        broker.kill()
        shutil.rmtree(broker.data / "config")
        broker.start()
        with AdminClient(broker.namesrv_address) as admin:
            assert "Lost" in admin.topics()
