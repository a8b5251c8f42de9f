from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.consumers.consumer_offsets import offsets_of
from aerobee.broker.errors import TableDamaged
from aerobee.broker.saved.json_file import JsonFile, PrivateFile
from aerobee.store.files.disk import Disk
from tests.broker.peers import HandClock

MOMENT = ".corrupt-20231114T221320"
"""The wall clock of these tests, 1,700,000,000 s, as it stands in a file name."""


def whole(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document


def json_file(directory: Path, disk: Disk | None = None) -> JsonFile:
    return JsonFile(directory / "topics.json", disk or Disk(), HandClock())


class PowerCut(Exception):
    """The process ends here."""


class CutDisk(Disk):
    """Stops at the n-th system call that changes something."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function.__name__ in {"pwrite", "ftruncate", "replace", "unlink", "link", "fsync"}:
            self.calls -= 1
            if self.calls < 0:
                raise PowerCut
        return super()._call(function, *args, **kwargs)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = json_file(tmp_path / "config")
    file.write_now({"offsetTable": {"t@g": {0: 250}}, "name": "ä"})
    assert file.load(whole) == {"offsetTable": {"t@g": {"0": 250}}, "name": "ä"}


@pytest.mark.parametrize("value", ["x", "$", "$.configTable.other.key"])
def test_a_name_that_fastjson_means_a_reference_by_is_a_name(tmp_path: Path, value: str) -> None:
    document = {"configTable": {"n": {"$ref": value}, "$ref": {"k": '"$ref"'}, "other": {"key": 1}}}
    file = json_file(tmp_path)
    file.write_now(document)
    assert file.load(whole) == document


def test_a_table_of_a_million_entries_is_read(tmp_path: Path) -> None:
    """A body of as many brackets is not."""
    document = {"offsetTable": {f"t@g{n}": {"0": 1} for n in range(505_000)}}
    file = json_file(tmp_path)
    file.write_now(document)
    assert file.load(len) == 1


def test_integer_keys_are_written_in_quotes(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.write_now({"offsetTable": {"t@g": {0: 250}}})
    assert file.path.read_bytes() == b'{"offsetTable":{"t@g":{"0":250}}}'


def test_bare_integer_keys_of_a_java_broker_are_read(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(
        b'{\n\t"offsetTable":{\n\t\t"t@g":{0:250,1:251\n\t\t}\n\t}\n}'
    )
    assert json_file(tmp_path).load(whole) == {"offsetTable": {"t@g": {"0": 250, "1": 251}}}


@pytest.mark.parametrize("content", [None, b"", b" \n"])
def test_without_content_there_is_nothing_to_load(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "topics.json").write_bytes(content)
    assert json_file(tmp_path).load(whole) is None


def test_the_old_content_stays_as_the_backup(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.write_now({"a": 1})
    file.write_now({"a": 2})
    assert file.path.read_bytes() == b'{"a":2}'
    assert file.backup.read_bytes() == b'{"a":1}'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("content", [None, b"", b'{"a":', b"[1]", b"\0\0\0\0", b'{"a":NaN}'])
def test_an_unreadable_file_is_replaced_by_its_backup(
    tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "topics.json.bak").write_bytes(b'{"a":1}')
    if content is not None:
        (tmp_path / "topics.json").write_bytes(content)
    assert json_file(tmp_path).load(whole) == {"a": 1}


def test_a_table_with_an_endless_number_is_replaced_by_its_backup(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(b'{"offsetTable":{"t@g":{"0":1e400}}}')
    (tmp_path / "topics.json.bak").write_bytes(b'{"offsetTable":{"t@g":{"0":7}}}')
    assert json_file(tmp_path).load(offsets_of) == {"t@g": {0: 7}}


def test_an_unreadable_file_is_kept_under_another_name(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":')
    file.backup.write_bytes(b'{"a":1}')
    assert file.load(whole) == {"a": 1}
    assert not file.path.exists()
    assert (tmp_path / f"topics.json{MOMENT}").read_bytes() == b'{"a":'


def test_a_document_that_its_table_refuses_counts_as_unreadable(tmp_path: Path) -> None:
    def read(document: Mapping[str, Any]) -> int:
        return int(document["a"])

    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":"many"}')
    file.backup.write_bytes(b'{"a":3}')
    assert file.load(read) == 3
    assert (tmp_path / f"topics.json{MOMENT}").exists()


def test_a_document_of_a_depth_that_no_table_has_counts_as_unreadable(tmp_path: Path) -> None:
    def read(document: Mapping[str, Any]) -> int:
        raise RecursionError("maximum recursion depth exceeded")

    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":' * 500 + b"1" + b"}" * 500)
    with pytest.raises(TableDamaged, match="has no backup"):
        file.load(read)


def test_without_a_backup_an_unreadable_file_refuses_the_start(tmp_path: Path) -> None:
    """To begin anew in silence would lose a table that nobody gave up."""
    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":')
    with pytest.raises(TableDamaged, match="has no backup: restore it, or move it away"):
        file.load(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["topics.json"]


def test_a_write_that_fails_behind_a_blank_file_leaves_its_backup(tmp_path: Path) -> None:
    for calls in range(12):
        directory = tmp_path / str(calls)
        directory.mkdir()
        first = json_file(directory, CutDisk(calls))
        first.path.write_bytes(b"")
        first.backup.write_bytes(b'{"a":1}')
        try:
            assert first.load(whole) == {"a": 1}
            first.write_now({"a": 2})
        except PowerCut:
            assert json_file(directory).load(whole) in ({"a": 1}, {"a": 2})
        else:
            break
    else:
        pytest.fail("no write came to its end")


def test_a_readable_file_does_not_need_its_backup(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":1}')
    file.backup.write_bytes(b"{")
    assert file.load(whole) == {"a": 1}


def test_when_the_backup_does_not_decode_either_the_start_is_refused(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.backup.write_bytes(b"{")
    with pytest.raises(TableDamaged) as caught:
        file.load(whole)
    assert str(file.path) in str(caught.value)
    assert str(file.backup) in str(caught.value)
    assert file.backup.exists()


def test_a_write_ends_with_the_old_or_the_new_content_wherever_it_is_cut(tmp_path: Path) -> None:
    for calls in range(12):
        directory = tmp_path / str(calls)
        json_file(directory).write_now({"a": 1})
        json_file(directory).write_now({"a": 2})
        try:
            json_file(directory, CutDisk(calls)).write_now({"a": 3})
        except PowerCut:
            assert json_file(directory).load(whole) in ({"a": 2}, {"a": 3})
        else:
            assert json_file(directory).load(whole) == {"a": 3}
            break
    else:
        pytest.fail("no write came to its end")


@pytest.mark.trio
async def test_a_large_table_is_written_in_a_thread(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    document = {"offsetTable": {f"t{number}@g": {0: number} for number in range(10_000)}}
    await file.write(document)
    loaded = file.load(whole)
    assert loaded is not None
    assert loaded["offsetTable"]["t9999@g"] == {"0": 9999}


def test_a_refused_start_leaves_both_files_where_they_are(tmp_path: Path) -> None:
    file = json_file(tmp_path)
    file.path.write_bytes(b'{"a":')
    file.backup.write_bytes(b"{")
    with pytest.raises(TableDamaged):
        file.load(whole)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "topics.json": b'{"a":',
        "topics.json.bak": b"{",
    }


@pytest.mark.parametrize("kind", [JsonFile, PrivateFile])
@pytest.mark.parametrize("of", ["link", "directory"])
def test_what_is_no_file_refuses_the_start_and_the_text_says_what_it_is(
    tmp_path: Path, kind: type[JsonFile], of: str
) -> None:
    """A link has all permissions of its own, and no chmod takes them away."""
    file = kind(tmp_path / "users.json", Disk(), HandClock())
    if of == "link":
        (tmp_path / "elsewhere.json").write_bytes(b"{}")
        (tmp_path / "elsewhere.json").chmod(0o600)
        file.path.symlink_to(tmp_path / "elsewhere.json")
    else:
        file.path.mkdir(mode=0o700)
    with pytest.raises(TableDamaged, match=r"users\.json is a link or a directory: put the file"):
        file.load(whole)
