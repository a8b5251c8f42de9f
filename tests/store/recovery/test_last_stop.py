"""The file that a clean stop leaves: it comes back as it was, or says nothing."""

from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.recovery.last_stop import LastStop, LastStopFile, QueueEnds
from tests.kit.store_model import draft, open_store

QUEUES = {"T": {0: QueueEnds(3, 9), 1: QueueEnds(0, 1)}, "%RETRY%g": {}}
STOP = LastStop(4_096, 70_000, QUEUES, "20260101000000000")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = LastStopFile(Disk(), tmp_path / "laststop.json")
    assert file.load() is None
    file.write(STOP)
    file.write(STOP)
    assert file.load() == STOP
    assert [path.name for path in tmp_path.iterdir()] == ["laststop.json"]


@settings(deadline=None)
@given(data=st.data())
def test_a_file_that_is_not_as_it_was_written_says_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = LastStopFile(Disk(), tmp_path_factory.getbasetemp() / "laststop.json")
    file.write(STOP)
    content = bytearray(file.path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    file.path.write_bytes(content)
    assert file.load() in (None, STOP)


def test_a_file_of_something_else_says_nothing(tmp_path: Path) -> None:
    file = LastStopFile(Disk(), tmp_path / "laststop.json")
    for content in (b"", b"{}", b"[]", b"\xff", b'{"crc":0,"stop":""}', b'{"crc":1,"stop":{}}'):
        file.path.write_bytes(content)
        assert file.load() is None


def test_it_names_the_queues_that_ever_had_a_message(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    for queue_id in (0, 1, 1):
        store.put(draft(queue_id=queue_id))
    store.dispatch()
    store.queues.obtain("T", 7)
    stop = LastStop.of(store.commit_log, store.queues, None)
    assert stop.queues == {"T": {0: QueueEnds(0, 1), 1: QueueEnds(0, 2)}}
    assert (stop.log_begin, stop.log_end) == (0, store.commit_log.max_offset)
    assert trio.run(store.close)
