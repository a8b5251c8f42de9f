"""What a command writes into a file: whole where the file can be replaced, else in place."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.cli.files import OWNER_ONLY, write_file
from tests.kit.file_limit import files_of_at_most
from tests.kit.mounts import mount, unmount

NOBODY = 10_001
WRITE = """
import pathlib, sys
from aerobee.cli.files import write_file
write_file(pathlib.Path(sys.argv[1]), b"new\\n")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@contextmanager
def nobody() -> Iterator[None]:
    """Meanwhile this process has the rights of a user without any."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_new_file_has_the_usual_permissions_and_any_name(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    for name in ("n" * 255, "-"):
        file = tmp_path / name
        for data in (b"first", b"second"):
            write_file(file, data)
            assert (file.read_bytes(), file.stat().st_mode) == (data, usual.stat().st_mode)
    secret = tmp_path / "secret"
    write_file(secret, b"new", OWNER_ONLY)
    assert secret.stat().st_mode & 0o777 == OWNER_ONLY
    assert len([*tmp_path.iterdir()]) == 4


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    with files_of_at_most(1_000), pytest.raises(OSError, match="File too large") as failed:
        write_file(link, bytes(2_000))
    assert failed.value.filename == str(link)
    assert (file.read_bytes(), sorted(tmp_path.iterdir())) == (b"old", [file, link])
    write_file(link, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o640)
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_by_its_path_is_written_to(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", WRITE, name]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"new\n"
    file = tmp_path / "file"
    file.write_bytes(b"old\n")
    with file.open("ab") as to:
        subprocess.run(command, check=True, stdout=to)
        to.write(b"behind\n")
    assert file.read_bytes() == b"old\nnew\nbehind\n"


def test_a_pipe_of_the_shell_is_written_to(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    link = tmp_path / "link"
    link.symlink_to(f"/dev/fd/{writer}")
    for path in (Path(f"/dev/fd/{writer}"), link):
        write_file(path, b"new", OWNER_ONLY)
        assert os.read(reader, 100) == b"new"
    os.close(reader)
    os.close(writer)
    write_file(Path("/dev/null"), b"new", OWNER_ONLY)
    assert Path("/dev/null").is_char_device()


def test_all_names_of_a_file_have_the_new_content(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(b"old, and longer")
    other.hardlink_to(file)
    write_file(file, b"new", OWNER_ONLY)
    assert (file.read_bytes(), other.read_bytes()) == (b"new", b"new")
    assert file.samefile(other)
    assert file.stat().st_mode & 0o777 == OWNER_ONLY


def test_a_mounted_file_is_written_in_place(tmp_path: Path) -> None:
    file, source = tmp_path / "file", tmp_path / "source"
    file.write_bytes(b"below")
    source.write_bytes(b"old, and longer")
    mount("--bind", str(source), str(file))
    try:
        write_file(file, b"new")
    finally:
        unmount(file)
    assert (file.read_bytes(), source.read_bytes()) == (b"below", b"new")
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(("uid", "gid"), [(NOBODY, NOBODY), (NOBODY, 0), (0, NOBODY)])
def test_a_file_keeps_its_owner_and_group(tmp_path: Path, uid: int, gid: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    file = tmp_path / "file"
    file.write_bytes(b"old, and longer")
    os.chown(file, uid, gid)
    write_file(file, b"new")
    assert (file.read_bytes(), file.stat().st_uid, file.stat().st_gid) == (b"new", uid, gid)
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("directory_mode", [0o755, 0o1777])
def test_a_file_that_may_be_written_is_so_where_its_name_may_not_change(
    place: Path, directory_mode: int
) -> None:
    """In a directory of somebody else, or in one such as /tmp, where each has his own files."""
    file = place / "file"
    file.write_bytes(b"old, and longer")
    file.chmod(0o666)
    place.chmod(directory_mode)
    with nobody():
        write_file(file, b"new")
        if directory_mode == 0o755:
            with pytest.raises(PermissionError, match="other"):
                write_file(place / "other", b"new")
    assert file.read_bytes() == b"new"
    assert [*place.iterdir()] == [file]


def test_a_file_that_may_not_be_written_is_not_replaced(place: Path) -> None:
    file = place / "file"
    place.chmod(0o777)
    with nobody():
        file.write_bytes(b"old")
        file.chmod(0o444)
        with pytest.raises(PermissionError, match="file"):
            write_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert [*place.iterdir()] == [file]


def test_what_is_not_for_others_is_not_written_where_they_read_it(place: Path) -> None:
    """Only its owner can take the file from them."""
    file = place / "file"
    file.write_bytes(b"old")
    file.chmod(0o666)
    with nobody(), pytest.raises(PermissionError, match="file"):
        write_file(file, b"secret", OWNER_ONLY)
    assert file.read_bytes() == b"old"
