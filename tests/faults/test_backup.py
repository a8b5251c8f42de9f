"""A copy of the directory of a broker that is held still, as docs/operations/backup.md makes it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aerobee.store.tools.verify import verify
from tests.faults.kills import SHAPE, SMALL_LOG
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import History
from tests.kit.load import Load, Reader
from tests.kit.raw_client import (
    RawAnswer,
    RawConnection,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartBroker

pytestmark = [pytest.mark.faults, pytest.mark.ours]

PULL, QUERY, COMMIT, CREATE_TOPIC, SEND = 11, 14, 15, 17, 310
OFFSET_MOVED = 21
QUEUE: dict[str, object] = {"consumerGroup": "g", "topic": "t", "queueId": 0}


def send(connection: RawConnection, count: int) -> None:
    for _ in range(count):
        assert connection.call(SEND, send_fields("t", 0), b"x").code == 0


def pulled(connection: RawConnection, queue_offset: int) -> RawAnswer:
    return connection.call(PULL, pull_fields("g", "t", 0, queue_offset))


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


@contextmanager
def restored(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with a queue of 50 that its consumer has committed, and had 60 before: it was set
    back to an older copy.
    """
    with BrokerProcess(data=tmp_path / "data") as broker:
        with RawConnection(broker.address) as connection:
            connection.call(CREATE_TOPIC, topic_fields("t", 1))
            send(connection, 50)
            assert pulled(connection, 20).code == 0, "the group is made by its first pull"
            assert connection.call(COMMIT, {**QUEUE, "commitOffset": 50}).code == 0
        assert broker.stop() == 0
        shutil.copytree(broker.data, tmp_path / "copy")
        broker.start()
        with RawConnection(broker.address) as connection:
            send(connection, 10)
            assert pulled(connection, 50).code == 0
        broker.kill()
        shutil.rmtree(broker.data)
        shutil.copytree(tmp_path / "copy", broker.data)
        broker.start()
        yield broker


def test_a_consumer_that_is_ahead_of_a_restored_copy_misses_nothing_that_comes_then(
    tmp_path: Path,
) -> None:
    """It ran on while the copy was older: more comes than it was ahead, before it pulls again."""
    with restored(tmp_path) as broker, RawConnection(broker.address) as connection:
        send(connection, 20)
        assert connection.call(COMMIT, {**QUEUE, "commitOffset": 60}).code == 0
        moved = pulled(connection, 60)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (OFFSET_MOVED, "50")
        assert pulled(connection, 50).code == 0
        assert len(list(records(pulled(connection, 50).body))) == 20
    assert "consumer_offset.beyond" in broker.log.read_text()


def test_nor_does_one_whose_queue_was_read_by_another_one_first(tmp_path: Path) -> None:
    with (
        restored(tmp_path) as broker,
        RawConnection(broker.address) as first,
        RawConnection(broker.address) as second,
    ):
        send(first, 20)
        assert pulled(first, 50).code == 0
        moved = pulled(second, 60)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (OFFSET_MOVED, "50")


def test_nor_the_successor_of_one_that_committed_and_left(tmp_path: Path) -> None:
    """Its offset is refused while the log is shorter; what comes later does not make it right."""
    with restored(tmp_path) as broker:
        with RawConnection(broker.address) as connection:
            assert connection.call(COMMIT, {**QUEUE, "commitOffset": 60}).code == 0
            send(connection, 20)
        with RawConnection(broker.address) as connection:
            assert connection.call(QUERY, QUEUE).ext["offset"] == "50"
