"""Pairs as they are installed: of the files in conf/pair, and with `brokers: 2` on both sides."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed
from tests.kit.replicas import (
    SEGMENT_BYTES,
    SLAVE_NOT_AVAILABLE,
    expect_prefix,
    log_end,
    make_topics,
    probe,
)
from tests.kit.supervised import Supervised
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.faults, pytest.mark.ours]

PAIR = Path(__file__).parents[2] / "conf" / "pair"
COUNT = 2
STEP = 10
"""Between the ports of two brokers of one supervisor."""
WITHIN_S = 90.0
COMMON: dict[str, object] = {"brokerIP1": HOST, "mappedFileSizeCommitLog": SEGMENT_BYTES}


@pytest.fixture
def masters(tmp_path: Path) -> Iterator[Supervised]:
    two = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "haPeers": HOST}
    whole = Supervised(data=tmp_path / "masters", settings={**COMMON, **two})
    # The port beside listenPort is for slaves; that of a third broker is free.
    whole.namesrv_port = whole.ports.listen + COUNT * STEP
    with started(whole):
        yield whole


@pytest.fixture
def slaves(tmp_path: Path, masters: Supervised) -> Iterator[Supervised]:
    settings = {**COMMON, "brokerRole": "SLAVE", "brokerId": 1}
    whole = Supervised(data=tmp_path / "slaves", settings=settings, namesrv=masters.namesrv_address)
    with started(whole):
        yield whole


@contextmanager
def started(whole: Supervised) -> Iterator[None]:
    """Three Python processes begin at once, which takes its time where others use the machine."""
    child = whole.launch()
    try:
        child.read_until("aerobee ready ", within_s=WITHIN_S)
        yield
    finally:
        child.kill()


def address(whole: Supervised, number: int) -> str:
    return f"{HOST}:{whole.ports.listen + STEP * number}"


def wait_for_the_slave(masters: Supervised, number: int) -> None:
    def has_one() -> bool:
        try:
            return probe(address(masters, number)) == 0
        except (Closed, OSError):
            return False

    eventually(has_one, within_s=WITHIN_S, what=f"a send to b-{number} that its slave has")


def expect_equal(masters: Supervised, slaves: Supervised, number: int) -> int:
    """The log of one is that of its slave."""
    end = log_end(address(masters, number))
    eventually(
        lambda: log_end(address(slaves, number)) == end,
        within_s=WITHIN_S,
        what=f"b-{number}: a copy up to {end}",
    )
    name = f"broker-{number}"
    expect_prefix(slaves.data / name, masters.data / name, end)
    return end


def test_each_of_several_brokers_has_its_slave(masters: Supervised, slaves: Supervised) -> None:
    for number in range(COUNT):
        make_topics(address(masters, number))
        wait_for_the_slave(masters, number)
    # Different logs, so that a slave of the wrong one would be seen.
    for _ in range(20):
        assert probe(address(masters, 1)) == 0
    ends = [expect_equal(masters, slaves, number) for number in range(COUNT)]
    assert len(set(ends)) == COUNT
    for whole, name in ((slaves, "b-0"), (masters, "b-1")):
        os.kill(whole.pids()[name], signal.SIGKILL)
        for number in range(COUNT):
            wait_for_the_slave(masters, number)
            expect_equal(masters, slaves, number)
    for whole in (masters, slaves):
        eventually(partial(is_ready, whole), within_s=WITHIN_S, what="all brokers are ready")


def is_ready(whole: Supervised) -> bool:
    health = whole.health()
    return bool(health["code"] == 200)


@dataclass(slots=True, kw_only=True)
class FromFile(BrokerProcess):
    """A broker with a settings file of ours."""

    file: Path

    def command(self) -> list[str]:
        return [*BrokerProcess.command(self), "-c", str(self.file)]


def test_the_files_of_conf_make_a_pair(tmp_path: Path) -> None:
    # Addresses and sizes of this machine; the rest is as it is installed.
    here = {"bindAddress": HOST, "brokerIP1": HOST, "haPeers": HOST}
    here |= {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
    master = FromFile(data=tmp_path / "master", settings=here, file=PAIR / "master.yaml")
    slave = FromFile(data=tmp_path / "slave", settings=here, file=PAIR / "slave.yaml")
    master.namesrv, slave.namesrv = slave.namesrv_address, master.namesrv_address
    with master:
        make_topics(master.address)
        assert probe(master.address) == SLAVE_NOT_AVAILABLE
        with slave:
            eventually(
                lambda: probe(master.address) == 0, within_s=WITHIN_S, what="a send on two disks"
            )
            end = log_end(master.address)
            eventually(
                lambda: log_end(slave.address) == end, within_s=WITHIN_S, what=f"a copy to {end}"
            )
            expect_prefix(slave.data, master.data, end)
