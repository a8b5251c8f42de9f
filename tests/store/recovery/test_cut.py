from __future__ import annotations

import shutil
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio

from aerobee.store.errors import StoreDamaged, StoreLocked, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import LOCK
from aerobee.store.recovery.cut import begin, cut, cut_locked, finish, look, unfinished
from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.verify import verify
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.store_model import LOG_BYTES, check_directory, draft, log_records, open_store
from tests.store.tools.stores import left_behind, stopped

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 30
BEFORE = 11
"""So many messages stay; the cut is inside of a segment, with others behind."""


class Store(NamedTuple):
    """A directory, and where it is cut."""

    root: Path
    offset: int

    @property
    def log(self) -> Path:
        return self.root / "commitlog"

    def cut(self, disk: Disk) -> None:
        cut(disk, self.root, self.log, self.offset, keep_in=self.root / "cut" / "here")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = stopped(tmp_path / "store", MESSAGES)
    return Store(root, log_records(root)[BEFORE][0])


def bodies(root: Path, behind: int = 0) -> list[object]:
    wanted = DumpFilter(behind=behind)
    return [message["queue_offset"] for message in dump(root, wanted, Findings())]


def test_what_says_of_a_cut_copy_that_it_was_delivered_goes_with_it(store: Store) -> None:
    config = store.root / "config"
    config.mkdir(exist_ok=True)
    gone = [config / name for name in ("timersDone.json", "timersDone.json.bak", "timercheck")]
    kept = config / "topics.json"
    for path in (*gone, kept):
        path.touch()
    store.cut(Disk())
    assert kept.exists()
    assert not any(path.exists() for path in gone)


def test_a_cut_leaves_what_is_in_front_and_keeps_the_rest_readable(store: Store) -> None:
    before = log_records(store.root)
    tail = bodies(store.root, store.offset)
    found = look(Disk(), store.log, store.offset)
    assert (found.messages, found.kept_in) == (MESSAGES - BEFORE, "")
    made = cut(Disk(), store.root, store.log, store.offset, keep_in=store.root / "cut" / "5-1")
    assert (made.messages, made.kept_in) == (MESSAGES - BEFORE, "cut/5-1")
    assert bodies(store.root / made.kept_in, store.offset) == tail
    opened, recovery = open_store(store.root, Disk())
    assert recovery.end_offset == store.offset
    for topic in ("T0", "T1"):
        for queue_id in (0, 1):
            left = sum(
                (topic, queue_id) == (f"T{number % 2}", number // 2 % 2) for number in range(BEFORE)
            )
            assert opened.max_offset(topic, queue_id) == left
            assert opened.min_offset(topic, queue_id) == 0
    other = opened.put(draft("T0", 0, b"another history"))
    assert other.physical_offset == store.offset
    opened.dispatch()
    assert trio.run(opened.close)
    found_now = verify(store.root)
    assert found_now.sound, found_now
    assert log_records(store.root)[:BEFORE] == before[:BEFORE]
    assert found_now.messages == BEFORE + 1


def test_a_cut_at_the_begin_of_a_segment(store: Store) -> None:
    start = next(at for at, _ in log_records(store.root) if at and not at % LOG_BYTES)
    in_front = sum(at < start for at, _ in log_records(store.root))
    Store(store.root, start).cut(Disk())
    opened, recovery = open_store(store.root, Disk())
    assert recovery.end_offset == start
    assert opened.put(draft("T0", 0, b"another")).physical_offset == start
    assert trio.run(opened.close)
    assert verify(store.root).messages == in_front + 1


def test_queries_find_nothing_of_what_was_cut(store: Store) -> None:
    store.cut(Disk())
    opened, _ = open_store(store.root, Disk())

    async def main() -> list[int]:
        while await opened.index.service.step():
            await trio.lowlevel.checkpoint()
        counts = []
        for number in (BEFORE - 1, BEFORE, MESSAGES - 1):
            result = await opened.index.query(f"T{number % 2}", f"k{number}", 9, 0, 1 << 62)
            counts.append(len(result.records))
        assert await opened.close()
        return counts

    assert trio.run(main) == [1, 0, 0]


def test_a_second_cut_does_not_replace_what_the_first_has_kept(store: Store) -> None:
    store.cut(Disk())
    opened, _ = open_store(store.root, Disk())
    assert opened.put(draft("T0", 0, b"second tail")).physical_offset == store.offset
    assert trio.run(opened.close)
    store.cut(Disk())
    names = sorted(path.name for path in (store.root / "cut").iterdir())
    assert names == ["here", "here-1"]
    assert len(bodies(store.root / "cut" / "here", store.offset)) == MESSAGES - BEFORE
    assert len(bodies(store.root / "cut" / "here-1", store.offset)) == 1


@pytest.mark.parametrize(
    ("shift", "words"), [(-1, "no message of the log in"), (1 << 40, "cannot be cut at")]
)
def test_other_offsets_are_refused_and_nothing_changes(
    store: Store, shift: int, words: str
) -> None:
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    with pytest.raises(StoreUnusable, match=words):
        Store(store.root, store.offset + shift).cut(Disk())
    end = log_records(store.root)[-1]
    with pytest.raises(StoreUnusable, match=r"has no message behind|no message of the log"):
        Store(store.root, end[0] + len(end[1])).cut(Disk())
    with pytest.raises(StoreUnusable, match="begin with an empty one"):
        Store(store.root, 0).cut(Disk())
    after = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    assert after == before


HOLDS = """
import sys
from pathlib import Path
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile
LockFile(Disk(), Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_log_of_another_broker_is_not_cut_while_that_one_runs(
    store: Store, tmp_path: Path
) -> None:
    lock = store.root / LOCK
    command = [sys.executable, "-c", HOLDS, str(lock)]
    root, keep_in = tmp_path / "other", tmp_path / "other" / "cut"
    root.mkdir()
    before = log_records(store.root)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match=str(lock)):
            cut_locked(root, store.log, store.offset, keep_in=keep_in)
        broker.communicate()
    assert log_records(store.root) == before
    made = cut_locked(root, store.log, store.offset, keep_in=keep_in)
    assert made.messages == MESSAGES - BEFORE


def test_an_unreadable_mark_refuses_the_start(store: Store) -> None:
    (store.root / "cut.json").write_text("{")
    with pytest.raises(StoreDamaged, match=r"cut\.json says where the log was being cut"):
        open_store(store.root, Disk())


# ── Ends in the middle ──


def test_a_cut_is_not_forgotten_where_the_log_is_not_mounted(store: Store, tmp_path: Path) -> None:
    begin(Disk(), store.root, store.log, store.offset, keep_in=store.root / "cut" / "here")
    mounted = tmp_path / "mounted"
    store.log.rename(mounted)
    store.log.mkdir()
    with pytest.raises(StoreDamaged, match=r"ends at 0 before it: have the right log there"):
        finish(Disk(), store.root, store.log)
    store.log.rmdir()
    mounted.rename(store.log)
    _, recovery = open_store(store.root, Disk())
    assert recovery.end_offset == store.offset


def disk_calls(store: Store, folder: Path) -> int:
    """How many changes of the disk a cut takes."""
    root = shutil.copytree(store.root, folder / "counted")
    disk = FaultyDisk(root)
    Store(root, store.offset).cut(disk)
    return disk.changes


def end_of(root: Path, disk: Disk) -> int:
    """Start, write another history, and stop; returns where the log ended at the start."""
    opened, recovery = open_store(root, disk)
    assert opened.put(draft("T0", 0, b"another history")).physical_offset == recovery.end_offset
    opened.dispatch()
    assert trio.run(opened.close)
    return recovery.end_offset


def check_end(root: Path, store: Store, end: int, *, begun: bool) -> None:
    """The tail is there as it was, or gone for good and in the copy."""
    at, last = log_records(store.root)[-1]
    assert end == (store.offset if begun else at + len(last))
    assert unfinished(Disk(), root) is None
    check_directory(root)
    found = verify(root)
    assert found.sound, found
    kept = root / "cut" / "here"
    if begun:
        assert bodies(kept, store.offset) == bodies(store.root, store.offset)


@pytest.mark.parametrize("source", ["stopped", "killed"])
def test_a_kill_at_each_call_of_the_disk(tmp_path: Path, source: str) -> None:
    root = tmp_path / "store"
    root = (
        stopped(root, MESSAGES) if source == "stopped" else left_behind(root, tmp_path / "killed")
    )
    store = Store(root, log_records(root)[BEFORE][0])
    changes = disk_calls(store, tmp_path)
    assert changes > 20
    for number in range(1, changes + 1):
        place = shutil.copytree(root, tmp_path / f"{number}")
        disk = FaultyDisk(place, Fault(number=number, cut=True))
        with pytest.raises(PowerCut):
            Store(place, store.offset).cut(disk)
        disk.kill()
        begun = (place / "cut.json").exists() or number >= changes - 1
        check_end(place, store, end_of(place, Disk()), begun=begun)
        shutil.rmtree(place)


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_a_power_cut_at_each_call_of_the_disk_and_one_after_the_next_start(
    tmp_path: Path, keep: float
) -> None:
    store = Store(stopped(tmp_path / "store", MESSAGES), 0)
    store = store._replace(offset=log_records(store.root)[BEFORE][0])
    random = Random(11)
    for number in range(1, disk_calls(store, tmp_path) + 1, 2 if keep else 1):
        place = shutil.copytree(store.root, tmp_path / f"{number}")
        disk = FaultyDisk(place, Fault(number=number, cut=True))
        with pytest.raises(PowerCut):
            Store(place, store.offset).cut(disk)
        after = disk.power_cut(tmp_path / f"{number}-after", random, keep=keep)
        # The next start ends the cut, is appended to, and loses its power, too.
        disk = FaultyDisk(after)
        opened, recovery = open_store(after, disk)
        end = recovery.end_offset
        opened.put(draft("T0", 0, b"another history"))
        opened.commit_log.sync_all()
        opened.let_go()
        last = disk.power_cut(tmp_path / f"{number}-last", random, keep=keep)
        opened, recovery = open_store(last, Disk())
        assert recovery.end_offset > end
        assert opened.read(end) is not None
        opened.dispatch()
        assert trio.run(opened.close)
        check_directory(last)
        found = verify(last)
        assert found.sound, found
        added = BEFORE + 1 if end == store.offset else MESSAGES + 1
        assert found.messages == added
        for path in (place, after, last):
            shutil.rmtree(path)


def test_zeros_of_a_killed_cut_are_on_disk_before_anything_is_appended(tmp_path: Path) -> None:
    """The page cache has them after a kill; nothing is left to write, and a sync is still due."""
    store = Store(stopped(tmp_path / "store", MESSAGES), 0)
    store = store._replace(offset=log_records(store.root)[BEFORE][0])
    changes = disk_calls(store, tmp_path)
    # The last calls: segments go, zeros, their sync, the mark goes, and that is synced.
    for at in range(changes - 10, changes + 1):
        root = shutil.copytree(store.root, tmp_path / f"z{at}")
        disk = FaultyDisk(root, Fault(number=at, cut=True))
        with pytest.raises(PowerCut):
            Store(root, store.offset).cut(disk)
        disk.kill()
        # The same machine goes on: its page cache is as it was, and what is on disk as well.
        disk.faults.clear()
        finish(disk, root, root / "commitlog")
        after = disk.power_cut(tmp_path / f"z{at}-after", Random(3), keep=0.0)
        assert end_of(after, Disk()) == store.offset
        assert verify(after).sound
