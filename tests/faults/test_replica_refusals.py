"""A pair that does not belong together: each says what is wrong, and neither loses anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.faults.test_disk_full import fill_up
from tests.kit.broker_process import BrokerProcess, MiB
from tests.kit.health import events
from tests.kit.mounts import small_file_system
from tests.kit.odd_broker import clock_ahead
from tests.kit.ports import HOST
from tests.kit.replicas import (
    MASTER,
    SEGMENT_BYTES,
    Replicas,
    ha_status,
    log_end,
    make_topics,
    probe,
    runtime,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

TOLD_WITHIN_S = 30.0
DAY_S = 86_400
AWAY = {11, 12}
SERVICE_NOT_AVAILABLE = 14
DISK_BYTES = 24 * MiB


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path / "pair") as replicas:
        yield replicas


def diverged(slave: BrokerProcess) -> str:
    """Wait until a slave says that the logs differ; its reason."""
    return told(slave, "replication.diverged")


def told(slave: BrokerProcess, event: str) -> str:
    """Wait until a slave says so; its reason."""
    return eventually(
        lambda: next(
            (str(one["reason"]) for one in events(slave.log.read_text()) if one["event"] == event),
            "",
        ),
        within_s=TOLD_WITHIN_S,
        what=f"the slave says {event}",
    )


def send(address: str, count: int) -> None:
    for _ in range(count):
        probe(address)


def follows(slave: BrokerProcess) -> bool:
    """Whether a slave says that it gets what its master writes."""
    client = ha_status(slave.address)["haClientRuntimeInfo"]
    return bool(client["state"] == "following")


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def test_a_master_that_lost_its_disk_takes_nothing_from_its_slave(pair: Replicas) -> None:
    send(pair.master.address, 20)
    end = pair.until_equal()
    pair.master.kill()
    before = files_of(pair.slave.data)
    shutil.rmtree(pair.master.data)
    pair.master.start()
    assert "behind the end of the master's" in diverged(pair.slave)
    # Its log grows beyond that of the slave, which is still another one.
    make_topics(pair.master.address)
    while log_end(pair.master.address) <= end:
        send(pair.master.address, 20)
    assert probe(pair.master.address) in AWAY
    assert files_of(pair.slave.data) == before
    assert log_end(pair.slave.address) == end
    pair.slave.kill()
    pair.slave.log.unlink()
    pair.slave.start()
    assert "the master has another record" in diverged(pair.slave)
    assert files_of(pair.slave.data) == before
    assert probe(pair.master.address) in AWAY


def test_a_slave_of_two_masters_stays_with_the_log_that_it_has(
    pair: Replicas, tmp_path: Path
) -> None:
    send(pair.master.address, 20)
    pair.until_equal()
    before = files_of(pair.slave.data)
    other = BrokerProcess(data=tmp_path / "other", settings={**MASTER, "haPeers": HOST})
    with other:
        make_topics(other.address)
        send(other.address, 60)
        end = log_end(other.address)
        pair.slave.kill()
        mine = pair.slave.settings
        pair.slave.settings = {**mine, "haMasterAddress": f"{HOST}:{other.ports.ha}"}
        pair.slave.start()
        assert "record at offset" in diverged(pair.slave)
        assert files_of(pair.slave.data) == before
        assert log_end(other.address) == end
        assert probe(other.address) in AWAY
    pair.slave.kill()
    pair.slave.settings = mine
    pair.slave.start()
    pair.until_in_sync()
    pair.until_equal()


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_an_empty_slave_of_another_group_copies_nothing(pair: Replicas, key: str) -> None:
    send(pair.master.address, 20)
    pair.empty_the_slave()
    mine = pair.slave.settings
    pair.slave.settings = {**mine, key: "elsewhere"}
    pair.slave.start()
    assert f"{key} is " in told(pair.slave, "replication.stuck")
    assert log_end(pair.slave.address) == 0
    assert probe(pair.master.address) in AWAY
    pair.slave.kill()
    pair.slave.settings = mine
    pair.slave.start()
    pair.until_in_sync()
    pair.until_equal()


def test_a_master_whose_disk_is_full_refuses_and_its_slave_is_unharmed(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", size_bytes=DISK_BYTES) as small:
        root, filler = tmp_path / "pair", small / "filler"
        with Replicas(root, master_data=small / "master") as pair:
            send(pair.master.address, 20)
            end = pair.until_equal()
            fill_up(filler)
            body = bytes(SEGMENT_BYTES // 8)
            eventually(
                lambda: probe(pair.master.address, body=body) == SERVICE_NOT_AVAILABLE,
                within_s=TOLD_WITHIN_S,
                what="a send that is refused for the full disk",
            )
            assert pair.until_equal() > end
            assert follows(pair.slave)
            filler.unlink()
            pair.until_in_sync()
            pair.until_equal()


def test_segments_of_another_size_are_named(pair: Replicas) -> None:
    send(pair.master.address, 20)
    before = log_end(pair.master.address)
    while log_end(pair.master.address) <= 2 * SEGMENT_BYTES:
        probe(pair.master.address, body=bytes(SEGMENT_BYTES // 8))
    pair.slave.kill()
    shutil.rmtree(pair.slave.data)
    pair.slave.settings = {**pair.slave.settings, "mappedFileSizeCommitLog": 4 * SEGMENT_BYTES}
    pair.slave.start()
    assert "mappedFileSizeCommitLog is another one there" in diverged(pair.slave)
    assert int(runtime(pair.slave.address)["commitLogMaxOffset"]) == 0
    assert log_end(pair.master.address) > before
    assert probe(pair.master.address) in AWAY


def test_a_slave_whose_clock_is_off_by_a_day_has_everything(pair: Replicas) -> None:
    for ahead_s in (DAY_S, -DAY_S):
        pair.slave.kill()
        pair.slave.module = clock_ahead(ahead_s)
        send(pair.master.address, 5)
        pair.slave.start()
        pair.until_in_sync()
        ours, theirs = (booted_at_s(one.address) for one in (pair.master, pair.slave))
        assert abs(theirs - ours - ahead_s) < DAY_S / 2, "the clock is not off"
        send(pair.master.address, 20)
        pair.until_equal()


def booted_at_s(address: str) -> float:
    return int(runtime(address)["bootTimestamp"]) / 1_000
