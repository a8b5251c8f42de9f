"""Marks of archived segments: which count, which go, and what is said of the others."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import mark_name, segment_name
from aerobee.store.space.archive_marks import ArchiveMarks
from tests.kit.faulty_disk import Fault, FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.logged import Logged

SIZE = 4_096
ROW = {at * SIZE: SIZE for at in range(4)}
END = 3 * SIZE + 100


def write(root: Path, start: int, content: str | None = None, **changes: Any) -> Path:
    fields = {"segment": segment_name(start), "bytes": SIZE, "records": 9, "crc32": 5, "job": "j"}
    path = root / "archive" / mark_name(start)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(fields | changes) + "\n" if content is None else content)
    return path


def look(marks: ArchiveMarks, end: int = END, *, make: bool = False) -> list[int]:
    return sorted(start // SIZE for start in marks.look(ROW, end, make=make))


def marks_of(root: Path, disk: Disk | None = None) -> ArchiveMarks:
    return ArchiveMarks(disk or Disk(), root / "archive")


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "archive").iterdir())


def test_segments_with_a_mark_are_archived(tmp_path: Path) -> None:
    marks = marks_of(tmp_path)
    assert look(marks) == []
    assert not (tmp_path / "archive").exists(), "nothing is made where nobody asks for it"
    write(tmp_path, 0)
    write(tmp_path, 2 * SIZE)
    write(tmp_path, SIZE).rename(tmp_path / "archive" / "something.done")
    assert look(marks) == [0, 2]
    (tmp_path / "archive" / mark_name(0)).unlink()
    assert look(marks) == [2], "a mark that someone took away counts no more"


def test_the_directory_is_made_where_marks_are_waited_for(tmp_path: Path) -> None:
    assert look(marks_of(tmp_path), make=True) == []
    assert (tmp_path / "archive").is_dir()


@pytest.mark.parametrize(
    ("content", "changes"),
    [
        ("", {}),
        ('{"segment": "0000', {}),
        ("[]", {}),
        ("{}", {}),
        ("\xff", {}),
        (None, {"bytes": SIZE - 1}),
        (None, {"bytes": None}),
        (None, {"bytes": str(SIZE)}),
        (None, {"segment": segment_name(SIZE)}),
        (None, {"segment": 0}),
    ],
)
def test_a_bad_mark_does_not_count_and_is_told_once(
    tmp_path: Path, content: str | None, changes: dict[str, Any], logged: Logged
) -> None:
    marks = marks_of(tmp_path)
    path = write(tmp_path, 0, content, **changes)
    assert look(marks) == look(marks) == []
    assert [line["path"] for line in logged if line["event"] == "cleanup.mark_refused"] == [
        str(path)
    ]
    write(tmp_path, 0)
    marks = marks_of(tmp_path)
    assert look(marks) == [0]


def test_a_bad_mark_that_is_written_again_counts(tmp_path: Path) -> None:
    marks = marks_of(tmp_path)
    write(tmp_path, 0, "{")
    assert look(marks) == []
    write(tmp_path, 0)
    assert look(marks) == [0]


def test_marks_of_segments_that_are_gone_go(tmp_path: Path) -> None:
    for start in (SIZE, 2 * SIZE, 3 * SIZE):
        write(tmp_path, start)
    later = {2 * SIZE: SIZE, 3 * SIZE: SIZE, 4 * SIZE: SIZE}
    assert marks_of(tmp_path).look(later, 5 * SIZE, make=False) == {2 * SIZE, 3 * SIZE}
    assert names(tmp_path) == [mark_name(2 * SIZE), mark_name(3 * SIZE)]


def test_a_mark_of_bytes_that_the_log_does_not_have_goes(tmp_path: Path) -> None:
    """After a power cut, or beside a log that was begun anew."""
    for start in range(0, 6 * SIZE, SIZE):
        write(tmp_path, start)
    assert look(marks_of(tmp_path), 2 * SIZE + 1) == [0, 1]
    assert names(tmp_path) == [mark_name(0), mark_name(SIZE)]
    assert marks_of(tmp_path).look({}, 0, make=False) == frozenset()
    assert names(tmp_path) == []


def test_a_mark_that_should_go_and_cannot_never_counts(tmp_path: Path, logged: Logged) -> None:
    write(tmp_path, SIZE)
    fault = Fault(name="unlink", error=errno.EPERM, times=1)
    marks = marks_of(tmp_path, FaultyDisk(tmp_path, fault))
    assert look(marks, SIZE + 10) == []
    assert look(marks) == [], "the log has grown past it"
    assert [line["event"] for line in logged] == ["cleanup.mark_refused"]


def test_marks_that_could_not_be_looked_at_after_a_crash_do_not_count_for_what_comes_there(
    tmp_path: Path,
) -> None:
    """The log has lost the end of segment 1; it is full again before the marks can be listed."""
    write(tmp_path, 0)
    write(tmp_path, SIZE)
    marks = marks_of(tmp_path, FaultyDisk(tmp_path, Fault(name="listdir", times=2)))
    assert look(marks, SIZE + 10) == []
    assert look(marks, 2 * SIZE + 10) == []
    assert look(marks) == [0]
    assert names(tmp_path) == [mark_name(0)]
    write(tmp_path, SIZE)
    assert look(marks) == [0, 1], "archived since"


def test_a_mark_goes_with_its_segment(tmp_path: Path) -> None:
    marks = marks_of(tmp_path)
    write(tmp_path, 0)
    write(tmp_path, SIZE)
    assert look(marks) == [0, 1]
    marks.remove(0)
    marks.remove(2 * SIZE)
    assert names(tmp_path) == [mark_name(SIZE)]
    assert look(marks) == [1]


def test_what_cannot_be_listed_counts_for_nothing_and_is_told_once(
    tmp_path: Path, logged: Logged
) -> None:
    write(tmp_path, 0)
    disk = FaultyDisk(tmp_path, Fault(name="listdir", times=2))
    marks = marks_of(tmp_path, disk)
    assert look(marks) == look(marks) == []
    assert look(marks) == [0]
    assert [line["event"] for line in logged] == ["cleanup.marks_unreadable"]
