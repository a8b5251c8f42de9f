"""A bit that flips in an old segment of a stopped member: it leads nobody, and is copied anew."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from aerobee import blocking
from aerobee.store.files.disk import Disk
from aerobee.store.replication.saved_epochs import read_epochs
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import FailoverGroup, Ledger
from tests.kit.health import events
from tests.kit.replicas import SEGMENT_BYTES
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 90.0
BODY = "B" * 8_000


def flip_in_first_segment(data: Path) -> None:
    """One bit of a message that no start reads: it is two segments before the end."""
    paths = sorted((data / "commitlog").iterdir())
    assert len([path for path in paths if path.read_bytes()[:1_024].strip(b"\0")]) >= 3
    content = bytearray(paths[0].read_bytes())
    content[content.index(BODY.encode()) + 4_000] ^= 1
    paths[0].write_bytes(content)


def test_a_flipped_bit_in_an_old_segment_takes_a_member_out_until_it_is_copied_anew(
    tmp_path: Path,
) -> None:
    with (
        EtcdNode(data=tmp_path / "etcd") as etcd,
        FailoverGroup(tmp_path / "group", [etcd]) as group,
        blocking.AdminClient(group.names.address) as admin,
    ):
        ledger = Ledger(group)
        first = ledger.send(3 * SEGMENT_BYTES // len(BODY), BODY)
        number, other = (one for one in group.members if one != first)
        damaged = group.members[number]
        assert damaged.stop() == 0
        flip_in_first_segment(damaged.data)
        damaged.start()
        group.until_set([first, other])
        told = [
            one for one in events(damaged.log.read_text()) if one["event"] == "failover.damaged"
        ]
        assert "crc at " in told[0]["reason"]
        assert "begin with an empty one" in told[0]["remedy"]
        with urllib.request.urlopen(
            f"http://127.0.0.1:{damaged.ports.metrics}/readyz", timeout=30
        ) as page:
            assert "its log is damaged" in json.load(page)["noted"]["slaves"]
        assert admin.replication_status(damaged.address).damage in told[0]["reason"]
        whole = admin.replication_status(group.members[other].address)
        assert (whole.damage, whole.passes) == ("", 1)
        # The master goes, and what is left of the sync set takes over; not the damaged one.
        group.members[first].kill()
        eventually(
            lambda: group.record().get("master") == other,
            within_s=WITHIN_S,
            what="the other whole member is elected",
        )
        group.members[first].start()
        ledger.send(8, "after")
        group.until_set([first, other])
        # What the remedy says.
        assert damaged.stop() == 0
        damaged.data.rename(tmp_path / "aside")
        damaged.start()
        group.until_complete()
        ledger.expect_everywhere()
        assert read_epochs(Disk(), damaged.data)[0].start == 0
