"""Three brokers and etcd: whatever ends or freezes the master, what was acknowledged stays."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aerobee import blocking
from aerobee.errors import AerobeeError, BrokerError
from tests.aerobee.cli.conftest import command, environment
from tests.kit import prepared
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import FailoverGroup, Ledger
from tests.kit.health import probed
from tests.kit.replicas import SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 90.0


@contextmanager
def running(root: Path) -> Iterator[FailoverGroup]:
    with EtcdNode(data=root / "etcd") as etcd, FailoverGroup(root / "group", [etcd]) as group:
        yield group


def test_after_a_kill_another_member_is_the_master_and_the_first_comes_back(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = ledger.send(40, "before")
        epoch = group.record()["epoch"]
        group.members[first].kill()
        second = ledger.send(40, "after")
        assert second != first
        assert group.record()["epoch"] > epoch
        apart = group.members[first]
        apart.start()
        eventually(lambda: in_sync(apart), within_s=WITHIN_S, what="it says that it is in sync")
        assert first in group.record()["syncSet"]
        group.until_complete()
        eventually(
            lambda: all(map(in_sync, group.members.values())), within_s=WITHIN_S, what="all are"
        )
        ledger.expect_everywhere()
        # A stop hands over: nobody waits for the end of a lease.
        assert group.members[second].stop() == 0
        assert ledger.send(8, "third") != second


def in_sync(member: BrokerProcess) -> bool:
    return bool(probed(f"http://{member.host}:{member.ports.metrics}/insyncz")["code"] == 200)


def test_what_only_a_dead_master_had_is_cut_and_kept(tmp_path: Path) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = ledger.send(8, "before")
        others = [member for member in group.members if member != first]
        for member in others:
            group.members[member].kill()
        assert ledger.ask(first, 0, b"not acknowledged") != SUCCESS
        group.members[first].kill()
        for member in others:
            group.members[member].start()
        ledger.send(8, "after")
        group.members[first].start()
        group.until_complete()
        ledger.expect_everywhere()
        assert list((group.members[first].data / "cut").iterdir())


def test_a_master_that_stood_still_acknowledges_nothing_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path) as group:
        ledger = Ledger(group)
        first = ledger.send(8, "before")
        frozen = group.members[first].child
        frozen.signal(signal.SIGSTOP)
        try:
            others = [member for member in group.members if member != first]
            eventually(
                lambda: any(ledger.ask(member, 0, b"after") == SUCCESS for member in others),
                within_s=WITHIN_S,
                what="another member is the master",
            )
        finally:
            frozen.signal(signal.SIGCONT)
        # What it acknowledges as a member that has lost its lease is in no other log.
        for number in range(20):
            ledger.ask(first, 1, f"asked {number}".encode())
        ledger.send(8, "later")
        group.until_complete()
        ledger.expect_everywhere()


def test_without_etcd_nothing_is_acknowledged_and_it_comes_back_alone(tmp_path: Path) -> None:
    with running(tmp_path) as group, blocking.AdminClient(group.names.address) as admin:
        ledger = Ledger(group)
        first = ledger.send(8, "before")
        (etcd,) = group.etcd
        etcd.kill()

        def refuses() -> bool:
            status = admin.replication_status(group.members[first].address)
            # While its lease lasts it acknowledges: `ha doctor` takes its problem for the reason
            # why it does not.
            assert not (status.is_master and status.problem), status
            return ledger.ask(first, 0, b"without") not in (SUCCESS, -1)

        eventually(refuses, within_s=WITHIN_S, what="sends are refused")
        assert SUCCESS not in {ledger.ask(member, 0, b"without") for member in group.members}
        etcd.start()
        ledger.send(8, "after")
        group.until_complete()
        ledger.expect_everywhere()


def test_people_switch_the_master_and_elect_one_whatever_is_lost(tmp_path: Path) -> None:
    with running(tmp_path) as group, blocking.AdminClient(group.names.address) as admin:
        ledger = Ledger(group)
        first = ledger.send(8, "before")
        second, third = (member for member in group.members if member != first)
        addresses = {number: member.address for number, member in group.members.items()}
        with pytest.raises(BrokerError, match="it is the master"):
            admin.switch(addresses[first], addresses[first])
        with pytest.raises(BrokerError, match="ask that one"):
            admin.switch(addresses[second], addresses[third])
        made = admin.switch(addresses[first], addresses[second])
        assert made.epoch > 1
        ledger.send(8, "switched")
        group.until_complete()
        ledger.expect_everywhere()
        status = admin.replication_status(addresses[second])
        assert (status.member, tuple(status.sync_set)) == (second, (1, 2, 3))
        with pytest.raises(BrokerError, match="etcd says who is the master"):
            admin.promote(addresses[third])
        # The third one misses what the other two acknowledge, and these are lost.
        group.members[third].kill()
        group.until_set([first, second])
        ledger.send(4, "lost")
        group.members[first].kill()
        group.members[second].kill()
        group.members[third].start()
        eventually(
            lambda: elected(admin, addresses[third]),
            within_s=WITHIN_S,
            what="the lease of the dead is over",
        )
        assert group.record()["uncleanEpoch"] == group.record()["epoch"]
        group.members[second].start()
        group.until_set([second, third])
        # What was lost is kept where it was cut.
        assert list((group.members[second].data / "cut").iterdir())
        Ledger(group).send(4, "again")


def elected(admin: blocking.AdminClient, address: str) -> bool:
    try:
        admin.promote(address, accepted=["unclean"])
    except AerobeeError:
        return False
    return True


def test_tools_tell_that_etcd_has_lost_its_data_and_the_command_that_they_name_helps(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as group:
        env = environment(group.names.address)

        def run(words: str) -> tuple[int, str, str]:
            done = prepared.run(command(*shlex.split(words)), env=env, within_s=WITHIN_S)
            return done.returncode, done.stdout, done.stderr

        ledger = Ledger(group)
        ledger.send(8, "before")
        (etcd,) = group.etcd
        etcd.kill()
        shutil.rmtree(etcd.data)
        etcd.start()

        def findings() -> list[dict[str, str]]:
            _, told, _ = run("ha doctor --for 0 --json")
            found: list[dict[str, str]] = json.loads(told)["findings"]
            # Until its lease is over there is a master, and its slaves are apart from it.
            nobody = [one for one in found if one["kind"] == "none_elected"]
            # Members hear of etcd one after the other.
            return [one for one in nobody if "the decider has no record" in one["text"]]

        (finding,) = eventually(findings, within_s=WITHIN_S, what="nobody is elected")
        named = finding["advice"].partition("aerobee ")[2].partition(",")[0]
        assert named.startswith("ha elect --unclean ")
        address = named.rpartition(" ")[2]
        # A promotion is for groups whose master is named by people.
        code, _, said = run(f"ha promote {address} --accept behind --yes")
        assert code == 1
        assert f"`aerobee {named}`" in said
        assert run(f"{named} --yes")[0] == 0
        ledger.send(8, "after")
        group.until_complete()
        ledger.expect_everywhere()
