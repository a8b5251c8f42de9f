"""A data directory stays with the member whose it is."""

import re
import shlex
from pathlib import Path

import pytest

from aerobee.broker.failover.deciders.controller_identity import (
    NAME,
    Identities,
    Identity,
    Member,
    refuse_other_decider,
)
from aerobee.broker.failover.member_number import refuse_other_number, save_number
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.names import MEMBER

MOVES = re.compile(r"\((mv [^()]+)\)")


def start_with_etcd(root: Path, number: int, *, answers: bool = True) -> None:
    """What a start does to the directory; once etcd answers, its log has epochs."""
    refuse_other_decider(Disk(), root, by_controller=False)
    refuse_other_number(Disk(), root, number)
    save_number(Disk(), root, number)
    if answers:
        (root / EPOCH_FILE_NAME).touch()


def start_with_controller(root: Path, number: int) -> None:
    """The same; `number` is the one that the controller gives."""
    refuse_other_decider(Disk(), root, by_controller=True)
    Identities(Disk(), root, Member("C", "b", "127.0.0.1:1")).granted(Identity(number))
    (root / EPOCH_FILE_NAME).touch()


def move(refused: StoreRefused) -> None:
    """Do what a refusal prints."""
    [printed] = MOVES.findall(str(refused))
    for words in printed.split(" && "):
        _, source, target = shlex.split(words)
        Path(source).replace(target)


def test_a_directory_keeps_the_number_with_which_it_got_epochs(tmp_path: Path) -> None:
    start_with_etcd(tmp_path, 3)
    start_with_etcd(tmp_path, 3)
    with pytest.raises(StoreRefused, match=r"of member 3 .*brokerId is 1.*Set brokerId to 3"):
        start_with_etcd(tmp_path, 1)
    start_with_etcd(tmp_path, 3)


def test_a_number_is_corrected_while_etcd_has_never_answered(tmp_path: Path) -> None:
    start_with_etcd(tmp_path, 21, answers=False)
    start_with_etcd(tmp_path, 2)
    with pytest.raises(StoreRefused, match="of member 2 "):
        start_with_etcd(tmp_path, 21)


def test_a_group_moves_to_a_controller_and_back_with_another_number(tmp_path: Path) -> None:
    """The only log of a group that moves is that of its last master, which gets the least id."""
    start_with_etcd(tmp_path, 2)
    with pytest.raises(StoreRefused) as to_controller:
        start_with_controller(tmp_path, 1)
    move(to_controller.value)
    start_with_controller(tmp_path, 1)
    with pytest.raises(StoreRefused) as back:
        start_with_etcd(tmp_path, 1)
    move(back.value)
    assert not (tmp_path / NAME).exists()
    start_with_etcd(tmp_path, 1)
    with pytest.raises(StoreRefused, match="of member 1 "):
        start_with_etcd(tmp_path, 2)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 1_000, b"9" * 5_000])
def test_a_file_without_a_number_is_refused_with_what_helps(tmp_path: Path, content: bytes) -> None:
    start_with_etcd(tmp_path, 1)
    (tmp_path / MEMBER).write_bytes(content)
    with pytest.raises(StoreRefused, match=r"has none\. Remove that file if brokerId was 1 here"):
        start_with_etcd(tmp_path, 1)
    (tmp_path / MEMBER).unlink()
    start_with_etcd(tmp_path, 1)
