import errno
import fcntl
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import trio

from aerobee.store.errors import SyncFailed
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format.names import segment_name
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut

SEGMENT = "00000000000000000000"
LOCK_IT = """
import sys
from pathlib import Path
from aerobee.store.files.disk import Disk
try:
    Disk().lock(Path(sys.argv[1]))
except BlockingIOError as error:
    sys.exit(error.strerror)
"""


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_names_appear_and_go(disk: Disk, tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    disk.mkdir(directory)
    disk.mkdir(directory)
    assert disk.is_directory(directory)
    disk.write(directory / "x", b"1")
    disk.rename(directory / "x", directory / "y")
    assert disk.listdir(directory) == ["y"]
    assert disk.size(directory / "y") == 1
    assert disk.mtime_ms(directory / "y") > 1_600_000_000_000
    disk.remove(directory / "y")
    disk.remove(directory / "y", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        disk.remove(directory / "y")
    disk.remove_directory(directory)
    assert not disk.exists(directory)
    assert disk.listdir(directory) == []


def test_what_is_no_directory_has_nothing_below_it(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not disk.exists(tmp_path / "file" / "x")
    assert not disk.is_directory(tmp_path / "file")
    assert disk.is_file(tmp_path / "file")


def test_an_allocated_file_has_its_size_and_its_blocks_when_its_name_appears(
    disk: Disk, tmp_path: Path
) -> None:
    path = tmp_path / "commitlog" / SEGMENT
    disk.mkdir(path.parent)
    handle = disk.allocate(path, 1 << 20, b"head")
    assert handle.size() == 1 << 20
    assert handle.pread(8, 0) == b"head" + bytes(4)
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert disk.listdir(tmp_path) == ["commitlog"]
    handle.close()
    handle.close()


def test_nothing_is_left_of_a_file_that_found_no_room(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="posix_fallocate", error=errno.ENOSPC))
    disk.mkdir(tmp_path / "commitlog")
    with pytest.raises(OSError, match="No space"):
        disk.allocate(tmp_path / "commitlog" / SEGMENT, 4096)
    assert disk.listdir(tmp_path / "commitlog") == []
    assert disk.listdir(tmp_path) == ["commitlog"]
    disk.allocate(tmp_path / "commitlog" / SEGMENT, 4096).close()


def test_the_order_of_an_allocation_is_size_sync_name_directory(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    disk = FaultyDisk(tmp_path)
    disk.allocate(tmp_path / "commitlog" / SEGMENT, 4096).close()
    disk.calls.clear()
    disk.allocate(tmp_path / "commitlog" / segment_name(4096), 4096).close()
    names = [
        call.name for call in disk.calls if call.name in ("posix_fallocate", "fsync", "replace")
    ]
    assert names == ["posix_fallocate", "fsync", "replace", "fsync"]
    assert disk.calls[-2].path == tmp_path / "commitlog"


def test_a_sparse_file_holds_its_first_bytes_when_its_name_appears(
    disk: Disk, tmp_path: Path
) -> None:
    path = tmp_path / "0" / SEGMENT
    disk.mkdir(path.parent)
    handle = disk.create(path, 200, b"unit", 40)
    assert path.read_bytes() == bytes(40) + b"unit" + bytes(156)
    handle.close()


def test_a_sparse_file_can_hold_them_after_a_power_cut_as_well(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    for sync in (False, True):
        disk = FaultyDisk(root)
        disk.mkdir(root / "0", sync=False)
        disk.create(root / "0" / SEGMENT, 200, b"unit", sync=sync).close()
        disk.sync_directory(root / "0")
        disk.sync_directory(root)
        after = disk.power_cut(tmp_path / f"{sync}", Random(1), keep=0)
        assert (after / "0" / SEGMENT).read_bytes() == (b"unit" + bytes(196) if sync else b"")


def test_reads_and_writes_name_their_position(disk: Disk, tmp_path: Path) -> None:
    handle = disk.open(tmp_path / "x", create=True)
    handle.truncate(10)
    handle.pwrite(memoryview(b"abc"), 4)
    assert handle.pread(100, 3) == b"\0abc\0\0\0"
    assert handle.pread_if_cached(3, 4) in (b"abc", None)
    assert str(tmp_path / "x") in repr(handle)
    handle.close()


def test_a_read_that_would_wait_says_so(tmp_path: Path) -> None:
    for error in (errno.EAGAIN, errno.EOPNOTSUPP):
        disk = FaultyDisk(tmp_path, Fault(name="preadv", error=error))
        handle = disk.open(tmp_path / "x", create=True)
        assert handle.pread_if_cached(1, 0) is None
        handle.close()
    disk = FaultyDisk(tmp_path, Fault(name="preadv"))
    handle = disk.open(tmp_path / "x")
    with pytest.raises(OSError, match="Input/output"):
        handle.pread_if_cached(1, 0)
    handle.close()


def test_a_short_write_is_gone_on_with(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="pwrite", short=True, times=3))
    handle = disk.open(tmp_path / "x", create=True)
    handle.pwrite(b"0123456789" * 10, 5)
    assert handle.pread(200, 0) == bytes(5) + b"0123456789" * 10
    handle.close()


def test_a_symbolic_link_is_not_followed(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="Too many levels"):
        disk.open(tmp_path / "link")


def test_a_mapping_outlives_its_handle(disk: Disk, tmp_path: Path) -> None:
    handle = disk.open(tmp_path / "x", create=True)
    disk.fill(handle, 4096)
    view = memoryview(disk.map(handle, 4096, writable=True))
    view[5:8] = b"abc"
    disk.sync(handle)
    reader = disk.map(handle, 4096, writable=False)
    handle.close()
    assert reader[5:8] == bytes(view[5:8]) == disk.read(tmp_path / "x")[5:8] == b"abc"


def test_zeroing_says_how_far_other_bytes_reached(disk: Disk, tmp_path: Path) -> None:
    handle = disk.open(tmp_path / "x", create=True)
    disk.fill(handle, 3 << 20)
    handle.pwrite(b"head", 0)
    handle.pwrite(b"x\0y", 1 << 21)
    assert disk.zero(handle, 4, 3 << 20) == (1 << 21) + 3 - 4
    assert disk.read(tmp_path / "x") == b"head" + bytes((3 << 20) - 4)
    assert disk.zero(handle, 4, 3 << 20) == 0
    handle.close()


def test_zeroing_works_where_holes_cannot_be_asked_for(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="lseek", error=errno.EINVAL, times=99))
    handle = disk.open(tmp_path / "x", create=True)
    handle.pwrite(b"abcdef", 0)
    assert disk.zero(handle, 2, 6) == 4
    assert disk.read(tmp_path / "x") == b"ab\0\0\0\0"
    disk.faults = [Fault(name="lseek", error=errno.EIO)]
    with pytest.raises(OSError, match="Input/output"):
        disk.zero(handle, 0, 6)
    handle.close()


def test_rewriting_changes_no_byte(disk: Disk, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "x").write_bytes(content)
    handle = disk.open(tmp_path / "x")
    disk.rewrite(handle, 100, 3 << 20)
    assert disk.read(tmp_path / "x") == content
    handle.close()


# ── Atomic writes ──


def test_an_atomic_write_keeps_the_old_content_as_backup(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for content in (b"one", b"two", b"three"):
        disk.write_atomically(path, content)
    assert disk.read(path) == b"three"
    assert disk.read(tmp_path / "topics.json.bak") == b"two"
    assert disk.listdir(tmp_path) == ["topics.json", "topics.json.bak"]


def test_a_file_system_without_links_keeps_a_backup_too(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="link", error=errno.EPERM))
    disk.write_atomically(tmp_path / "t", b"1")
    disk.write_atomically(tmp_path / "t", b"2")
    assert (disk.read(tmp_path / "t"), disk.read(tmp_path / "t.bak")) == (b"2", b"1")


def test_an_atomic_write_without_backup_leaves_none(disk: Disk, tmp_path: Path) -> None:
    disk.write_atomically(tmp_path / "t", b"1", backup=False)
    disk.write_atomically(tmp_path / "t", b"2", backup=False)
    assert disk.listdir(tmp_path) == ["t"]


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_a_power_cut_at_any_call_leaves_the_old_or_the_new_content(
    tmp_path: Path, keep: float
) -> None:
    for number in range(1, 40):
        root = tmp_path / f"{number}"
        root.mkdir()
        Disk().write_atomically(root / "t", b"older")
        Disk().write_atomically(root / "t", b"old")
        disk = FaultyDisk(root, Fault(number=number, cut=True))
        try:
            disk.write_atomically(root / "t", b"new")
            done = True
        except PowerCut:
            done = False
        after = disk.power_cut(tmp_path / f"{number}-after", Random(number), keep=keep)
        names = [name for name in ("t", "t.bak") if (after / name).exists()]
        assert names, number
        assert (after / names[0]).read_bytes() in ((b"new",) if done else (b"old", b"new"))
        if done:
            return
    raise AssertionError("an atomic write has fewer than 40 calls")


# ── Locks ──


def test_a_lock_keeps_other_processes_out_and_names_us(disk: Disk, tmp_path: Path) -> None:
    handle = disk.lock(tmp_path / "lock")
    held = subprocess.run(
        [sys.executable, "-c", LOCK_IT, str(tmp_path / "lock")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert held.stderr.strip() == f"held by pid {disk.process_id()}"
    disk.unlock(handle)


def test_a_lock_keeps_this_process_out_and_is_not_lost_by_trying(
    disk: Disk, tmp_path: Path
) -> None:
    handle = disk.lock(tmp_path / "lock")
    for _ in range(2):
        with pytest.raises(BlockingIOError, match="held by this process"):
            Disk().lock(tmp_path / "lock")
    disk.unlock(handle)
    disk.unlock(Disk().lock(tmp_path / "lock"))


def test_a_lock_that_cannot_be_taken_says_why(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="lockf", error=errno.ENOLCK))
    with pytest.raises(OSError, match="No locks"):
        disk.lock(tmp_path / "lock")
    disk.unlock(disk.lock(tmp_path / "lock"))


def test_a_lock_whose_holder_is_not_seen_here_says_so(tmp_path: Path) -> None:
    """In another container: its number means nothing here, and the system gives none."""
    disk = FaultyDisk(tmp_path, Fault(name="lockf", error=errno.EAGAIN))
    with pytest.raises(BlockingIOError, match="of another container"):
        disk.lock(tmp_path / "lock")


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="this system has no such locks")
def test_a_lock_of_no_process_has_no_pid(disk: Disk, tmp_path: Path) -> None:
    """As one over NFS, whose number is negative, and means nothing here."""
    with (tmp_path / "lock").open("wb") as other:
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, struct.pack("hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0))
        with pytest.raises(BlockingIOError, match="held by a process of another container"):
            disk.lock(tmp_path / "lock")


# ── The machine ──


def test_space_memory_and_file_system_are_known(disk: Disk, tmp_path: Path) -> None:
    space = disk.free_space(tmp_path)
    assert 0 <= space.available_bytes <= space.free_bytes <= space.total_bytes
    assert disk.file_system(Path("/proc")) == "proc"
    assert disk.file_system(tmp_path) != ""
    assert disk.total_memory() > 1 << 26


def test_without_a_list_of_mounts_the_file_system_is_unknown(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="open", path="mountinfo"))
    assert disk.file_system(tmp_path) == "?"


class MountedDisk(Disk):
    """A machine with other mounts, and other numbers of devices than they have."""

    TABLE = b"""22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 /sub /data rw,noatime shared:1 - btrfs /dev/sdb rw
31 30 0:44 / /data/a\\040b rw - tmpfs tmpfs rw
"""

    def read(self, path: Path) -> bytes:
        return self.TABLE

    def device(self, path: Path) -> int:
        return os.makedev(0, 99)


@pytest.mark.parametrize(
    ("path", "kind", "copies"),
    [
        ("/var/lib", "ext4", False),
        ("/data", "btrfs", True),
        ("/data/store/commitlog", "btrfs", True),
        ("/database", "ext4", False),
        ("/data/a b/store", "tmpfs", False),
    ],
)
def test_a_subvolume_with_a_number_of_its_own_is_of_the_mount_above(
    path: str, kind: str, copies: bool
) -> None:
    disk = MountedDisk()
    assert disk.file_system(Path(path)) == kind
    assert disk.maps_writes(Path(path) / "file") is not copies


def test_the_clocks_go(disk: Disk) -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.trio
async def test_a_sync_in_a_thread_lets_the_loop_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    handle = disk.open(tmp_path / "x", create=True)
    told = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def wait_for_the_loop(call: object) -> None:
        trio.from_thread.run_sync(told.set, trio_token=token)

    disk.before = wait_for_the_loop
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.in_thread, disk.sync, handle)
        await told.wait()
    disk.before = None
    assert disk.calls[-1].name == "fdatasync"
    handle.close()


# ── The faulty disk itself: a test bites only if its fault does ──


def test_what_was_not_synced_is_lost_in_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    disk = FaultyDisk(root)
    disk.mkdir(root / "q")
    handle = disk.allocate(root / "q" / SEGMENT, 8192)
    view = disk.map(handle, 8192, writable=True)
    view[0:4] = b"kept"
    disk.sync(handle)
    view[4096:5000] = b"x" * 904
    after = disk.power_cut(tmp_path / "after", Random(1), keep=0.0)
    assert (after / "q" / SEGMENT).read_bytes() == b"kept" + bytes(8188)


def test_pages_of_a_failed_sync_stay_lost_until_they_are_written_again(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    for rewrite in (False, True):
        disk = FaultyDisk(root)
        handle = disk.open(root / "x", create=True)
        disk.sync_directory(root)
        handle.pwrite(b"data", 0)
        disk.faults = [Fault(name="fdatasync")]
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(handle)
        disk.sync(handle)
        if rewrite:
            disk.rewrite(handle, 0, 4)
        after = disk.power_cut(tmp_path / f"after-{rewrite}", Random(1), keep=1.0)
        assert (after / "x").read_bytes() == (b"data" if rewrite else bytes(4))
        (root / "x").unlink()


def test_a_name_is_lost_without_a_sync_of_its_directory(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    disk = FaultyDisk(root)
    handle = disk.open(root / "x", create=True)
    disk.sync(handle)
    assert not (disk.power_cut(tmp_path / "after", Random(1), keep=0.0) / "x").exists()


def test_after_the_cut_every_call_fails(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(number=1, cut=True))
    for _ in range(2):
        with pytest.raises(PowerCut):
            disk.write(tmp_path / "x", b"")
    disk.kill()
    disk.write(tmp_path / "x", b"")


def test_pages_of_a_mapping_are_forgotten_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.files.disk._UNMAP_BYTES", 1 << 16)
    disk = Disk()
    size = 3 << 16
    mapping = disk.map(disk.allocate(tmp_path / "m", size), size, writable=True)
    mapping[:] = b"x" * size
    before = resident_bytes(tmp_path / "m")
    disk.forget_pages(mapping)
    assert (before, resident_bytes(tmp_path / "m")) == (size, 0)
    assert mapping[:] == b"x" * size


def resident_bytes(path: Path) -> int:
    """How much of a mapped file stands in the page table of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.endswith(str(path)))
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1]) * 1_024


# ── Descriptors ──


def next_descriptor() -> int | None:
    """What a connection would get; None when there is none."""
    try:
        return os.open("/dev/null", os.O_RDONLY)
    except OSError:
        return None


def test_a_reserve_serves_while_there_is_no_other_descriptor_and_is_full_again(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = Disk()
    disk.descriptors.hold([tmp_path], 4)
    taken: list[int] = []
    try:
        open_now = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, hard))
        while (fd := next_descriptor()) is not None:
            taken.append(fd)
        for number in range(20):
            with disk.open(tmp_path / f"{number}", create=True) as handle:
                handle.pwrite(b"data", 0)
                disk.sync(handle)
                mapped = disk.map(handle, 4, writable=False)
                assert mapped[:] == b"data"
                mapped.close()
            disk.sync_directory(tmp_path)
            disk.sync_directory(tmp_path.parent)
        assert next_descriptor() is None
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    before = len(os.listdir("/proc/self/fd"))
    disk.descriptors.release()
    assert len(os.listdir("/proc/self/fd")) == before - 6


def test_only_a_sync_that_failed_is_a_failed_sync(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="open", error=errno.EMFILE, times=1))
    with pytest.raises(OSError, match="Too many open files") as raised:
        disk.sync_directory(tmp_path)
    assert not isinstance(raised.value, SyncFailed)
    disk.faults = [Fault(name="fsync"), Fault(name="fdatasync")]
    with pytest.raises(SyncFailed):
        disk.sync_directory(tmp_path)
    with disk.open(tmp_path / "f", create=True) as handle, pytest.raises(SyncFailed):
        disk.sync(handle)
