"""Three brokers and etcd: whatever ends or freezes the master, what was acknowledged stays."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import FailoverGroup, Ledger
from tests.kit.raw_client import Closed
from tests.kit.replicas import SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 60.0


@contextmanager
def running(root: Path) -> Iterator[FailoverGroup]:
    with EtcdNode(data=root / "etcd") as etcd, FailoverGroup(root / "group", [etcd]) as group:
        yield group


def code_of(group: FailoverGroup, member: int) -> int:
    """What a send is answered with; −1: nothing."""
    try:
        return group.send(member, 0, b"asked")[0]
    except (Closed, OSError):
        return -1


def test_after_a_kill_another_member_is_the_master_and_the_first_comes_back(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = group.until_master()
        ledger.send(first, 40, "before")
        group.members[first].kill()
        second = group.until_master(but=first)
        record = group.record()
        assert (record["epoch"], record["master"]) == (2, second)
        ledger.send(second, 40, "after")
        group.members[first].start()
        group.until_complete()
        ledger.expect_everywhere()
        # A stop hands over: nobody waits for the end of a lease.
        assert group.members[second].stop() == 0
        third = group.until_master(but=second)
        ledger.send(third, 8, "third")
        assert group.record()["epoch"] == 3


def test_what_only_a_dead_master_had_is_cut_and_kept(tmp_path: Path) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = group.until_master()
        ledger.send(first, 8, "before")
        others = [member for member in group.members if member != first]
        for member in others:
            group.members[member].kill()
        assert code_of(group, first) != SUCCESS
        group.members[first].kill()
        for member in others:
            group.members[member].start()
        second = group.until_master(but=first)
        ledger.send(second, 8, "after")
        group.members[first].start()
        group.until_complete()
        ledger.expect_everywhere()
        (kept,) = (group.members[first].data / "cut").iterdir()
        assert kept.name.endswith("-1")


def test_a_master_that_stood_still_acknowledges_nothing_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = group.until_master()
        ledger.send(first, 8, "before")
        group.members[first].child.signal(signal.SIGSTOP)
        try:
            second = group.until_master(but=first)
            ledger.send(second, 8, "after")
        finally:
            group.members[first].child.signal(signal.SIGCONT)
        codes = [code_of(group, first) for _ in range(20)]
        assert SUCCESS not in codes
        group.until_complete()
        assert code_of(group, first) != SUCCESS
        ledger.expect_everywhere()


def test_without_etcd_nothing_is_acknowledged_and_it_comes_back_alone(tmp_path: Path) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = group.until_master()
        ledger.send(first, 8, "before")
        (etcd,) = group.etcd
        etcd.kill()
        eventually(
            lambda: code_of(group, first) not in (SUCCESS, -1),
            within_s=WITHIN_S,
            what="sends are refused",
        )
        assert SUCCESS not in {code_of(group, member) for member in group.members}
        etcd.start()
        ledger.send(group.until_master(), 8, "after")
        group.until_complete()
        ledger.expect_everywhere()
