import errno
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from aerobee.store.errors import StoreForeign, StoreLocked, StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.tools.repair import plan, repair
from aerobee.store.tools.verify import verify
from tests.kit.logged import Logged, events
from tests.kit.store_model import LOG_BYTES, log_records, open_store
from tests.store.tools.states import KILLED, STOPPED, check, served
from tests.store.tools.stores import MESSAGES, filled, flip, left_behind, stopped

NOW_MS = 1_700_000_000_000


def restarted(root: Path) -> None:
    store, _ = open_store(root, Disk())
    assert trio.run(store.close)


def test_a_cut_loses_what_it_says_and_keeps_a_copy(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    at, _ = log_records(root)[30]
    name = f"{at - at % LOG_BYTES:020d}"
    flip(root / "commitlog" / name, at % LOG_BYTES + 90)
    damaged = (root / "commitlog" / name).read_bytes()
    wanted = plan(root)
    assert wanted.cut_at == at
    assert wanted.cut_messages == MESSAGES - 30
    kept = repair(root, wanted, NOW_MS)
    assert (kept / "commitlog" / name).read_bytes() == damaged
    restarted(root)
    found = verify(root)
    assert found.sound, found
    assert found.messages == 30


def test_queues_are_built_again_and_no_message_is_lost(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    flip(root / "consumequeue" / "T0" / "0" / f"{0:020d}", 26)
    wanted = plan(root)
    assert wanted.cut_at is None
    repair(root, wanted, NOW_MS)
    restarted(root)
    found = verify(root)
    assert found.sound, found
    assert found.messages == MESSAGES


def test_a_sound_directory_needs_nothing_and_a_live_one_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("aerobee.store.tools.repair.verify")
        with pytest.raises(StoreLocked, match="is in use"):
            plan(store.root)
    assert trio.run(store.close)
    assert not plan(store.root).needed


def test_the_replica_of_a_group_is_verified_and_not_repaired(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    (root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    assert verify(root).sound
    with pytest.raises(StoreForeign, match="this replica belongs to a group"):
        plan(root)


class Apart(Disk):
    """The consume queues are a mount point: nothing is moved out of it, and it stays."""

    def rename(self, old: Path, new: Path) -> None:
        if "consumequeue" in old.parts and "consumequeue" not in old.name:
            raise OSError(errno.EXDEV, "another disk", str(old))
        super().rename(old, new)

    def remove_directory(self, path: Path) -> None:
        if path.name == "consumequeue":
            raise OSError(errno.EBUSY, "is a mount point", str(path))
        super().remove_directory(path)


def test_queues_on_a_disk_of_their_own_are_copied_before_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.tools.repair.Disk", Apart)
    root = stopped(tmp_path / "store")
    queues = root / "consumequeue"
    flip(queues / "T0" / "0" / f"{0:020d}", 26)
    before = {path.relative_to(queues): path.read_bytes() for path in queues.glob("*/*/*")}
    kept = repair(root, plan(root), NOW_MS) / "consumequeue"
    assert {path.relative_to(kept): path.read_bytes() for path in kept.glob("*/*/*")} == before
    assert list(queues.iterdir()) == []
    restarted(root)
    assert verify(root).sound


def test_queues_stay_where_their_copy_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.tools.repair.Disk", Apart)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    root = stopped(tmp_path / "store")
    queues = root / "consumequeue"
    flip(queues / "T0" / "0" / f"{0:020d}", 26)
    before = {path: path.read_bytes() for path in queues.glob("*/*/*")}
    with monkeypatch.context() as patch:
        patch.setattr("aerobee.store.tools.repair.copy", full)
        with pytest.raises(OSError, match="no room"):
            repair(root, plan(root), NOW_MS)
    assert {path: path.read_bytes() for path in queues.glob("*/*/*")} == before
    restarted(root)
    found = verify(root)
    assert found.sound, "a repair that was interrupted is ended by the next start"
    assert found.messages == MESSAGES


# ── Each state of a damaged store ──


class Sources(NamedTuple):
    """A stopped store and one that a kill left, never changed."""

    stopped: Path
    killed: Path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    base = tmp_path_factory.mktemp("states")
    return Sources(stopped(base / "stopped"), left_behind(base / "used", base / "killed"))


@pytest.mark.parametrize("state", STOPPED)
def test_nothing_of_a_stopped_store_goes_without_a_word(
    sources: Sources, tmp_path: Path, state: str
) -> None:
    check(sources.stopped, STOPPED[state], tmp_path)


@pytest.mark.parametrize("state", KILLED)
def test_nothing_of_a_killed_store_goes_without_a_word(
    sources: Sources, tmp_path: Path, state: str
) -> None:
    check(sources.killed, KILLED[state], tmp_path)


def test_a_start_says_that_the_oldest_segments_are_gone(
    sources: Sources, tmp_path: Path, logged: Logged
) -> None:
    root = tmp_path / "d"
    shutil.copytree(sources.stopped, root)
    served(root)
    assert "store.oldest_missing" not in events(logged)
    STOPPED["no first segment"](root)
    served(root)
    assert events(logged).count("store.oldest_missing") == 1
    served(root)
    assert events(logged).count("store.oldest_missing") == 1, "it is said once"


@pytest.mark.parametrize("state", [name for name in STOPPED if name.startswith("no segment")])
def test_a_log_without_a_segment_keeps_every_guard(
    sources: Sources, tmp_path: Path, state: str
) -> None:
    root = tmp_path / "d"
    shutil.copytree(sources.stopped, root)
    STOPPED[state](root)
    wanted = plan(root)
    assert not wanted.needed
    assert wanted.left
    with pytest.raises(StoreRefused):
        served(root)
