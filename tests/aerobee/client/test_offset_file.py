"""Offsets of broadcasting groups in files: ours, Java's, and those that a crash left."""

from pathlib import Path
from shutil import rmtree

import pytest

from aerobee.client.offset_file import OffsetFile
from aerobee.client.send_result import MessageQueue

OFFSETS = {MessageQueue("T", "broker-a", 0): 12, MessageQueue("T", "broker-a", 1): 0}


@pytest.fixture
def file(tmp_path: Path) -> OffsetFile:
    return OffsetFile(tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json")


def test_what_was_saved_is_loaded_and_the_one_before_is_kept(file: OffsetFile) -> None:
    assert file.load() == {}
    file.save(dict.fromkeys(OFFSETS, 5))
    file.save(OFFSETS)
    assert file.load() == OFFSETS
    file.path.write_bytes(file.path.read_bytes()[:-5])
    assert file.load() == dict.fromkeys(OFFSETS, 5)
    file.path.unlink()
    assert file.load() == dict.fromkeys(OFFSETS, 5)


def test_names_in_the_file_are_those_on_the_wire(tmp_path: Path) -> None:
    inside = OffsetFile(tmp_path / "offsets.json", "shop")
    inside.save(OFFSETS)
    assert inside.load() == OFFSETS
    assert {one.topic for one in OffsetFile(inside.path).load()} == {"shop%T"}


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}'
        ':12,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0\n\t}\n}',
        r'{"offsetTable":{"{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"T\"}":12,'
        r'"{\"topic\":\"T\",\"brokerName\":\"broker-a\",\"queueId\":1}":0}}',
        '{"offsetTable":[[{"topic":"T","brokerName":"broker-a","queueId":0},12],'
        '[{"topic":"T","brokerName":"broker-a","queueId":1},0]]}',
    ],
    ids=["object keys", "quoted keys", "pairs"],
)
def test_every_form_that_is_out_there_is_read(file: OffsetFile, text: str) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text)
    assert file.load() == OFFSETS


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"offsetTable":{"x":1}}', '{"offsetTable":7}', "\x00"]
)
def test_what_is_no_table_is_none(file: OffsetFile, text: str) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text)
    assert file.load() == {}


def test_a_place_that_cannot_be_written_ends_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = tmp_path / "taken"
    file = OffsetFile(taken / "g" / "offsets.json")
    for written in (1, 2):
        taken.write_text("")
        assert not file.save(OFFSETS)
        assert not file.save(OFFSETS)
        assert caplog.text.count("not written to") == written
        taken.unlink()
        assert file.save(OFFSETS)
        assert file.load() == OFFSETS
        rmtree(taken)
