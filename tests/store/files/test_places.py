"""Where a file is made before it has its name, and what a kill at each step leaves there."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import is_index_name, segment_name, segment_start
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.running_store import put_in_time, running_store
from tests.kit.store_model import (
    LOG_BYTES,
    QUEUE_BYTES,
    ManualClock,
    Sent,
    check_directory,
    draft,
    flush_everything,
    open_store,
    read_queue,
)

SIZE = 4_096
BODY = b"m%d " * 300
MESSAGES = 9
KEYS = 5


class ApartDisk(FaultyDisk):
    """A disk on which `commitlog` and `index` are mounts: nothing can be moved in or out."""

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if (
            function is os.replace
            and args[0].parent != args[1].parent
            and MOUNTS & set(args[1].parts)
        ):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(args[0]))
        return super()._call(function, *args, **kwargs)


class NotOursDisk(FaultyDisk):
    """A disk on which `commitlog` and `index` are ours, and the directory above is not."""

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = function is os.open and args[1] & os.O_CREAT and args[0].name.endswith(".new")
        if made and args[0].parent == self.root:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(args[0]))
        return super()._call(function, *args, **kwargs)


MOUNTS = {"commitlog", "index"}
MAKING = {"open", "ftruncate", "posix_fallocate", "pwrite", "replace", "unlink"}
APART = [ApartDisk, NotOursDisk]


def foreign(root: Path) -> list[str]:
    """Files that keep a Java broker from its start: it knows numbers and one length only.

    An empty last segment is left by Java's own brokers, when they die between two calls.
    """
    found = []
    segments = sorted((root / "commitlog").glob("*"))
    for path in segments:
        size = path.stat().st_size
        empty_last = not size and path == segments[-1]
        if segment_start(path.name) is None or (size != LOG_BYTES and not empty_last):
            found.append(f"{path} {size}")
    found += [
        str(path)
        for path in (root / "index").glob("*")
        if not is_index_name(path.name) and not path.name.endswith(".new")
    ]
    found += [
        f"{path} {path.stat().st_size}"
        for path in (root / "consumequeue").glob("*/*/*")
        if segment_start(path.name) is None or path.stat().st_size != QUEUE_BYTES
    ]
    return found


@pytest.mark.parametrize("kind", APART)
@pytest.mark.parametrize("name", [segment_name(SIZE), "20231114221320001"])
def test_a_file_is_made_in_its_directory_where_none_can_be_moved_in(
    tmp_path: Path, kind: type[FaultyDisk], name: str
) -> None:
    directory = tmp_path / ("commitlog" if segment_start(name) else "index")
    directory.mkdir()
    disk = kind(tmp_path)
    for other in (name, name[:-1] + "2"):
        disk.allocate(directory / other, SIZE, b"head").close()
        assert (directory / other).read_bytes() == b"head".ljust(SIZE, b"\0")
    assert [path.name for path in tmp_path.iterdir()] == [directory.name]
    assert len(list(directory.iterdir())) == 2
    tried = [call for call in disk.calls if call.path and call.path.parent == tmp_path]
    assert len({call.path for call in tried if str(call.path).endswith(".new")}) == 1, "tried once"


def test_a_directory_on_another_file_system_needs_no_room_on_ours(tmp_path: Path) -> None:
    """The disk of the data directory is full, the log's is not."""

    class TwoDisks(FaultyDisk):
        def device(self, path: Path) -> int:
            return 1 if path == self.root else 2

    (tmp_path / "commitlog").mkdir()
    full = Fault(name="open", path="commitlog.", error=errno.ENOSPC, times=99)
    disk = TwoDisks(tmp_path, full)
    disk.allocate(tmp_path / "commitlog" / segment_name(0), SIZE).close()
    one_disk = FaultyDisk(tmp_path, Fault(name="open", path="commitlog.", error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        one_disk.allocate(tmp_path / "commitlog" / segment_name(SIZE), SIZE)


def test_where_a_directory_takes_files_from_beside_it_nothing_is_made_inside(
    tmp_path: Path,
) -> None:
    (tmp_path / "commitlog").mkdir()
    disk = FaultyDisk(tmp_path)
    path = tmp_path / "commitlog" / segment_name(0)
    assert disk.place_of(path, SIZE).parent == tmp_path
    assert list((tmp_path / "commitlog").iterdir()) == []
    later = disk.changes
    disk.place_of(path, SIZE)
    assert disk.changes == later, "asked once"


@pytest.mark.trio
@pytest.mark.parametrize("kind", APART)
async def test_the_next_segment_is_ready_in_its_place_before_it_is_needed(
    tmp_path: Path, kind: type[FaultyDisk]
) -> None:
    async with running_store(tmp_path, kind(tmp_path), prepares=True) as store:
        for _ in range(8):
            assert (await put_in_time(store, draft(body=bytes(1_500)))).physical_offset >= 0
        store.dispatch()
        assert len(read_queue(store, "T", 0)) == 8
    left = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert left == [segment_name(number * LOG_BYTES) for number in range(len(left))]
    assert store.commit_log.max_offset > (len(left) - 1) * LOG_BYTES, "a stop takes the spare away"


def life(root: Path, disk: FaultyDisk, acknowledged: list[Sent]) -> None:
    """Messages over several segments, queue and index files; each counts once it is on disk."""
    store, _ = open_store(root, disk, max_index_num=KEYS)
    taken: list[Sent] = []
    for number in range(MESSAGES):
        sent = Sent(BODY % ((number,) * 300), b"KEYS\x01k%d\x02" % number)
        assert store.put(draft(body=sent.body, properties=sent.properties)).status.name == "PUT_OK"
        store.dispatch()
        taken.append(sent.stored)
        if number % 4 == 0:
            flush_everything(store, disk)
            acknowledged += taken[len(acknowledged) :]
    trio.run(store.close)


def steps_of_making(root: Path, kind: type[FaultyDisk]) -> list[int]:
    """The changes by which segments and index files come to be, and those right behind them."""
    disk = kind(root)
    life(root, disk, [])
    made = {
        call.number
        for call in disk.calls
        if call.name in MAKING
        and call.path is not None
        and (MOUNTS & set(call.path.parts) or call.path.suffix == ".new")
    }
    return sorted(made | {number + 1 for number in made})


@pytest.mark.parametrize("kind", APART)
@pytest.mark.parametrize("keep", [1.0, 0.5, 0.0])
def test_a_crash_at_any_change_leaves_what_java_opens_and_every_message(
    tmp_path: Path, kind: type[FaultyDisk], keep: float
) -> None:
    """A kill (all is kept) and power cuts; also where files are made inside their directories."""
    steps = steps_of_making(tmp_path / "whole", kind)
    for number in steps[:: 1 if keep == 1.0 else 4]:
        root = tmp_path / f"{number}"
        root.mkdir()
        disk = kind(root, Fault(number=number, cut=True, times=1))
        acknowledged: list[Sent] = []
        with contextlib.suppress(PowerCut):
            life(root, disk, acknowledged)
        if not disk.dead:
            # Threads of the stop share some of the last calls.
            assert number > steps[-1] - 12, number
            break
        after = tmp_path / f"{number}-after"
        disk.power_cut(after, Random(number), keep=keep)
        if keep == 1.0:
            assert foreign(after) == [], number
        store, _ = open_store(after, kind(after), max_index_num=KEYS)
        store.dispatch()
        found = read_queue(store, "T", 0) if acknowledged else []
        assert found[: len(acknowledged)] == acknowledged, number
        assert trio.run(store.close)
        assert foreign(after) == []
        assert not list(after.rglob("*.new"))
        check_directory(after)


def test_only_leftovers_of_this_log_are_removed_beside_it(tmp_path: Path) -> None:
    """Several brokers may have their logs on one disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    ours, theirs = (disk / f"{log}.{segment_name(LOG_BYTES)}.new" for log in ("log", "other"))
    for path in (ours, theirs):
        path.touch()
    store, _ = open_store(tmp_path / "d", Disk(), store_path_commit_log=str(disk / "log"))
    assert trio.run(store.close)
    assert (ours.exists(), theirs.exists()) == (False, True)


@pytest.mark.parametrize(
    "place", [".", "commitlog", "consumequeue", "consumequeue/T", "index", "config", "timerlog"]
)
def test_a_lost_and_found_that_cannot_be_read_is_passed_over(tmp_path: Path, place: str) -> None:
    class Unreadable(Disk):
        def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], Path) and "lost+found" in args[0].parts:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(args[0]))
            return super()._call(function, *args, **kwargs)

    (tmp_path / place / "lost+found").mkdir(parents=True)
    for _ in range(2):
        store, _ = open_store(tmp_path, Unreadable(), ManualClock())
        store.put(draft(properties=b"KEYS\x01k\x02"))
        store.dispatch()
        assert trio.run(store.close)
    store, _ = open_store(tmp_path, Unreadable())
    assert len(read_queue(store, "T", 0)) == 2
    store.let_go()


def test_a_directory_that_is_no_segment_is_passed_over_in_the_log(tmp_path: Path) -> None:
    """As Java's 5.x does."""
    (tmp_path / "commitlog" / "notes").mkdir(parents=True)
    store, _ = open_store(tmp_path, Disk())
    store.put(draft())
    assert trio.run(store.close)
