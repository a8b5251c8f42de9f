"""An export of what is readable, behind damage too, in the form that `produce` takes."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio

from aerobee.cli.store import unpacked
from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.tools import export as export_module
from aerobee.store.tools.dump import DumpFilter
from aerobee.store.tools.export import Export, export
from aerobee.store.tools.verify import verify
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.file_limit import files_of_at_most
from tests.kit.mounts import unreadable
from tests.kit.store_model import LOG_BYTES, draft, log_records, open_store
from tests.store.tools.stores import MESSAGES, flip, stopped

NUMBERS = [f"7F00{number:028d}" for number in range(MESSAGES)]


def exported(root: Path, output: Path, **wanted: Any) -> Export:
    return export(root, output, DumpFilter(**wanted), unpack=unpacked)


def ids(output: Path) -> list[str]:
    """The ids of all exported messages, sorted."""
    lines = [line for path in output.iterdir() for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["message_id"] for line in lines)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stopped(tmp_path / "d")


def test_every_message_is_in_the_file_of_its_topic_in_order(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    found = exported(root, output)
    assert found.topics == {"T0.jsonl": 30, "T1.jsonl": 30}
    assert (found.messages, found.damage, found.unreadable_bytes) == (MESSAGES, [], 0)
    lines = [json.loads(line) for line in (output / "T1.jsonl").read_text().splitlines()]
    assert [line["message_id"] for line in lines] == NUMBERS[1::2]
    assert (lines[0]["tag"], lines[0]["keys"]) == ("t1", ["k1"])
    assert "body" in lines[0] or "body_base64" in lines[0]


def test_what_cannot_be_read_is_left_out_and_counted_with_its_place(
    root: Path, tmp_path: Path
) -> None:
    records = log_records(root)
    for number, byte in ((10, 90), (20, 5)):
        at, _ = records[number]
        flip(root / "commitlog" / f"{at - at % LOG_BYTES:020d}", at % LOG_BYTES + byte)
    found = exported(root, tmp_path / "out")
    assert (found.messages, found.damaged_bodies) == (MESSAGES - 2, 1)
    assert found.unreadable_bytes == records[21][0] - records[20][0]
    assert {one.physical_offset for one in found.damage} == {records[10][0], records[20][0]}
    assert ids(tmp_path / "out") == [one for n, one in enumerate(NUMBERS) if n not in (10, 20)]


def test_messages_beside_what_the_disk_cannot_read_come_out(root: Path, tmp_path: Path) -> None:
    """Of the first segment, from a block on; the segments behind it are whole."""
    segments = sorted((root / "commitlog").iterdir())
    records = log_records(root)
    with unreadable(segments[0], tmp_path / "bad", begin=4 << 10):
        found = exported(root, tmp_path / "out")
        checked = verify(root)
    for damage in (found.damage, checked.damage):
        places = {one.place for one in damage if one.kind == "unreadable"}
        assert places == {str(segments[0])}
    assert found.unreadable_bytes > 0
    behind = [n for n, (at, _) in enumerate(records) if at >= LOG_BYTES]
    assert behind
    assert {NUMBERS[n] for n in behind} <= set(ids(tmp_path / "out"))
    assert found.messages == checked.messages < MESSAGES


def test_only_what_lies_behind_a_place_comes_out_where_that_is_asked_for(
    root: Path, tmp_path: Path
) -> None:
    at, _ = log_records(root)[50]
    exported(root, tmp_path / "out", behind=at)
    assert ids(tmp_path / "out") == NUMBERS[50:]


def test_bodies_come_out_as_they_were_sent_and_others_are_left_out(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "d", Disk())
    for body in (zlib.compress(b"sent " * 50), b"no zlib"):
        assert store.put(draft("Z", body=body, sys_flag=1)).physical_offset >= 0
    assert trio.run(store.close)
    found = exported(tmp_path / "d", tmp_path / "out")
    [line] = (tmp_path / "out" / "Z.jsonl").read_text().splitlines()
    assert json.loads(line)["body"] == "sent " * 50
    assert found.damaged_bodies == 1


def test_lines_beyond_the_buffer_are_appended_to_the_same_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "BUFFER_BYTES", 1_000)
    exported(root, tmp_path / "out")
    assert ids(tmp_path / "out") == NUMBERS


def test_an_earlier_export_is_not_written_over(root: Path, tmp_path: Path) -> None:
    exported(root, tmp_path / "out")
    before = (tmp_path / "out" / "T0.jsonl").read_bytes()
    with pytest.raises(StoreUnusable, match="name another directory"):
        exported(root, tmp_path / "out", topic="T0")
    assert (tmp_path / "out" / "T0.jsonl").read_bytes() == before


def test_an_export_that_fails_leaves_no_file_and_may_be_run_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    monkeypatch.setattr(export_module, "BUFFER_BYTES", 1_000)
    with files_of_at_most(2_000), pytest.raises(OSError, match="File too large"):
        exported(root, output)
    assert [*output.iterdir()] == []
    exported(root, output)
    assert ids(output) == NUMBERS


@pytest.mark.parametrize("call", ["fdatasync", "replace"])
@pytest.mark.parametrize("topic", ["T0", "T1"])
def test_no_file_has_its_name_before_all_are_on_the_disk(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, topic: str
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    disk = FaultyDisk(output, Fault(name=call, path=topic))
    monkeypatch.setattr(export_module, "Disk", lambda: disk)
    with pytest.raises(OSError, match="Input/output"):
        exported(root, output)
    assert [*output.iterdir()] == []


def test_what_a_killed_export_left_is_not_taken_over(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    for name in ("T0", "gone"):
        (output / f"{name}.jsonl.aerobee-export.tmp").write_text("half\n" * 100_000)
    exported(root, output)
    assert sorted(path.name for path in output.iterdir()) == ["T0.jsonl", "T1.jsonl"]
    assert ids(output) == NUMBERS


def test_other_files_stay_as_they_are(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    others = [output / name for name in ("mine.txt", "T0.jsonl.tmp", "mine.jsonl.tmp")]
    for other in others:
        other.write_text("mine")
    exported(root, output)
    assert [other.read_text() for other in others] == ["mine"] * 3


@pytest.mark.parametrize("buffer_bytes", [1_000, export_module.BUFFER_BYTES])
def test_a_second_export_into_the_same_directory_is_refused_and_damages_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int
) -> None:
    """The second begins while the first has half of the messages."""
    output, bodies = tmp_path / "out", 0

    def unpack(body: bytes, sys_flag: int) -> bytes:
        nonlocal bodies
        bodies += 1
        if bodies == MESSAGES // 2:
            with pytest.raises(StoreLocked, match="another store export writes there"):
                exported(other, output)
        return unpacked(body, sys_flag)

    other = stopped(tmp_path / "other")
    monkeypatch.setattr(export_module, "BUFFER_BYTES", buffer_bytes)
    export(root, output, DumpFilter(), unpack=unpack)
    assert sorted(path.name for path in output.iterdir()) == ["T0.jsonl", "T1.jsonl"]
    assert ids(output) == NUMBERS
    with pytest.raises(StoreUnusable, match="name another directory"):
        exported(root, output)


def test_a_draft_that_somebody_removed_is_not_made_anew_and_only_own_files_go(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, bodies = tmp_path / "out", 0

    def unpack(body: bytes, sys_flag: int) -> bytes:
        nonlocal bodies
        bodies += 1
        if bodies == MESSAGES // 2:
            for path in output.iterdir():
                path.unlink()
            (output / "T0.jsonl").write_text("mine")
        return unpacked(body, sys_flag)

    monkeypatch.setattr(export_module, "BUFFER_BYTES", 1_000)
    with pytest.raises(FileNotFoundError):
        export(root, output, DumpFilter(), unpack=unpack)
    assert [path.read_text() for path in output.iterdir()] == ["mine"]


def test_topics_of_similar_names_have_files_of_their_own(tmp_path: Path) -> None:
    """The retry topic of POP has a plus sign; a long group's is longer than a file name."""
    long = "%RETRY%" + "g" * 240
    topics = {"%RETRY%g+T": 1, "%RETRY%g_T": 2, f"{long}1": 3, f"{long}2": 4}
    store, _ = open_store(tmp_path / "d", Disk())
    for topic, count in topics.items():
        for _ in range(count):
            assert store.put(draft(topic)).physical_offset >= 0
    assert trio.run(store.close)
    found = exported(tmp_path / "d", tmp_path / "out")
    assert found.topics["%RETRY%g+T.jsonl"] == 1
    assert found.topics["%RETRY%g_T.jsonl"] == 2
    assert sorted(found.topics.values()) == [1, 2, 3, 4]
    for path in (tmp_path / "out").iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert {topics[line["topic"]] for line in lines} == {len(lines)}


@pytest.mark.parametrize("inside", ["", "commitlog", "new/deep"])
def test_nothing_is_written_into_the_store(root: Path, inside: str) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(StoreUnusable, match="is in the store"):
        exported(root, root / inside)
    assert sorted(root.rglob("*")) == before
