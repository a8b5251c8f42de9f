"""The file with the number of a member: what may stand in it. Its requests are tested on Java's."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.failover.decider import DeciderMisused
from aerobee.broker.failover.deciders.controller_identity import (
    NAME,
    TEMP_NAME,
    Identities,
    Identity,
    Member,
    decode_identity,
    encode_identity,
    identify,
    refuse_other_decider,
)
from aerobee.remoting.wire.command import Command
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from tests.kit.running_store import TrioClock
from tests.kit.strategies import names

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.header import Header

OWN = Member("DefaultCluster", "broker-a", "127.0.0.1:1")


def test_it_is_as_java_writes_it() -> None:
    assert encode_identity(OWN, Identity(1)) == b"DefaultCluster#broker-a#1"
    asked = Identity(2, "127.0.0.1:1;1700000000000")
    assert encode_identity(OWN, asked) == b"DefaultCluster#broker-a#2#127.0.0.1:1;1700000000000"


@given(names, names, st.integers(1, (1 << 63) - 1), st.sampled_from(["", "127.0.0.1:1;5"]))
def test_what_is_written_is_read(cluster: str, broker: str, number: int, code: str) -> None:
    member, identity = Member(cluster, broker, "a:1"), Identity(number, code)
    assert decode_identity(encode_identity(member, identity), member) == identity


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(StoreRefused):
        assert decode_identity(data, OWN).broker_id > 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no cluster#broker#number"),
        (b"DefaultCluster#broker-a#", "no cluster#broker#number"),
        (b"DefaultCluster#broker-a#-1", "no cluster#broker#number"),
        (b"DefaultCluster#broker-a#0", "its number is 0"),
        (b"DefaultCluster#broker-b#1", "it is of broker broker-b in cluster DefaultCluster"),
    ],
)
def test_a_file_of_another_group_or_of_none_is_refused(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(StoreRefused, match=f"{NAME}: .*{reason}"):
        Identities(Disk(), tmp_path, OWN).read()


def test_a_name_with_the_separator_is_refused() -> None:
    with pytest.raises(StoreRefused, match="neither may have a #"):
        encode_identity(Member("a#b", "c", ""), Identity(1))


@pytest.mark.parametrize(
    ("names", "etcd", "controller"),
    [
        ((), False, False),
        ((EPOCH_FILE_NAME,), False, True),
        ((NAME,), True, False),
        ((TEMP_NAME,), True, False),
        ((NAME, EPOCH_FILE_NAME), True, False),
    ],
)
def test_a_directory_is_of_one_kind_of_decider(
    tmp_path: Path, names: tuple[str, ...], etcd: bool, controller: bool
) -> None:
    for name in names:
        (tmp_path / name).touch()
    for by_controller, refused in ((False, etcd), (True, controller)):
        if not refused:
            refuse_other_decider(Disk(), tmp_path, by_controller=by_controller)
            continue
        with pytest.raises(StoreRefused) as error:
            refuse_other_decider(Disk(), tmp_path, by_controller=by_controller)
        assert all(f"mv {tmp_path / name} " in str(error.value) for name in names)


class Garbled:
    """A controller whose answers say what no controller says."""

    async def call(self, header: Header, body: bytes = b"") -> Command:
        await trio.lowlevel.checkpoint()
        return Command(code=0, ext={"nextBrokerId": "x"})


@pytest.mark.trio
async def test_a_number_that_is_none_is_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(DeciderMisused, match="CONTROLLER_GET_NEXT_BROKER_ID"):
        await identify(Disk(), tmp_path, Garbled(), OWN, TrioClock())
    assert Identities(Disk(), tmp_path, OWN).read(TEMP_NAME) is None
