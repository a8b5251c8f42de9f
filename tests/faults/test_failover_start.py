"""Directories that a group does not open, as another decider gave out the epochs of their logs."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.failover.deciders.controller_identity import NAME
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import NAME as GROUP
from tests.kit.failover_group import FailoverGroup, Ledger
from tests.kit.health import events
from tests.kit.ports import free_port
from tests.kit.process import DidNotStart
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.ours]

ALONE = {"minInSyncReplicas": 1}
COMMANDS = re.compile(r"\((mv [^()]+)\)")


def refusal(member: BrokerProcess) -> str:
    """Why it does not start; nothing in its directory has changed."""
    before = sorted((path, path.stat().st_mtime_ns) for path in member.data.iterdir())
    with pytest.raises(DidNotStart):
        member.start()
    after = sorted((path, path.stat().st_mtime_ns) for path in member.data.iterdir())
    assert {name for name, _ in after} - {name for name, _ in before} <= {member.data / "lock"}
    told = [event for event in events(member.log.read_text()) if event["event"] == "broker.refused"]
    text: str = told[-1]["reason"]
    return text


def run(reason: str) -> None:
    """Do what a refusal prints."""
    [printed] = COMMANDS.findall(reason)
    subprocess.run(["sh", "-c", printed], check=True)


def test_a_directory_of_a_controller_is_refused_with_etcd_and_moves_with_the_printed_command(
    tmp_path: Path,
) -> None:
    with (
        EtcdNode(data=tmp_path / "etcd-1") as first,
        FailoverGroup(tmp_path / "group 1", [first], size=1, settings=ALONE) as group,
    ):
        member, ledger = group.members[1], Ledger(group)
        ledger.send(8, "before")
        assert member.stop() == 0
        # A controller's directory has both files, and the epochs are not etcd's.
        (member.data / NAME).write_text(f"DefaultCluster#{GROUP}#1")
        reason = refusal(member)
        assert str(member.data / NAME) in reason
        assert "enableControllerMode" in reason
        run(reason)
        assert not (member.data / NAME).exists()
        assert not (member.data / EPOCH_FILE_NAME).exists()
    with (
        EtcdNode(data=tmp_path / "etcd-2") as second,
        FailoverGroup(tmp_path / "group 1", [second], size=1, settings=ALONE) as moved,
    ):
        assert moved.record()["epoch"] == 1
        later = Ledger(moved)
        later.acknowledged |= ledger.acknowledged
        later.send(8, "after")
        later.expect_in(1)


def test_a_directory_of_another_member_is_refused(tmp_path: Path) -> None:
    """It would count for a member that has every acknowledged message."""
    with (
        EtcdNode(data=tmp_path / "etcd") as etcd,
        FailoverGroup(tmp_path / "group", [etcd], size=1, settings=ALONE) as group,
    ):
        member, ledger = group.members[1], Ledger(group)
        ledger.send(8, "before")
        assert member.stop() == 0
        own = dict(member.settings)
        member.settings = own | {"failoverMembers": "1;2", "brokerId": 2}
        assert "is of member 1 of its group, and brokerId is 2" in refusal(member)
        member.settings = own
        member.start()
        ledger.send(8, "after")
        ledger.expect_everywhere()


def test_a_directory_of_a_group_with_etcd_is_refused_with_a_controller(tmp_path: Path) -> None:
    with (
        EtcdNode(data=tmp_path / "etcd") as etcd,
        FailoverGroup(tmp_path / "group", [etcd], size=1, settings=ALONE) as group,
    ):
        member = group.members[1]
        assert member.stop() == 0
        nobody = f"127.0.0.1:{free_port()}"
        own = {"etcdEndpoints": None, "failoverMembers": None, "brokerId": None}
        member.settings = {
            **member.settings,
            **own,
            "enableControllerMode": True,
            "controllerAddr": nobody,
        }
        reason = refusal(member)
        assert str(member.data / EPOCH_FILE_NAME) in reason
        assert "etcdEndpoints" in reason
        run(reason)
        assert not (member.data / EPOCH_FILE_NAME).exists()
        member.launch()
        # The directory is taken: now it waits for a controller that gives it a number.
        eventually(
            lambda: "failover.no_number" in member.log.read_text(),
            within_s=90,
            what="it asks for a number",
        )
