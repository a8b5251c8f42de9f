"""The extents of consume queues: they come back as they were, or say nothing."""

from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.queues.queue_extents import (
    NO_EXTENTS,
    QueueExtent,
    QueueExtents,
    QueueExtentsFile,
)

EXTENTS = QueueExtents(
    6_000_000,
    {
        "T": [QueueExtent(0, 0, 0, 9, 0, 900, 77, 1_700_000_000_000_000_000)],
        'a "name"': [QueueExtent(n, 6_000_000, 300_007, 300_009, 5, 700, 77, n) for n in range(3)],
    },
)


@pytest.mark.parametrize("extents", [EXTENTS, QueueExtents(20, {})])
def test_what_is_written_is_read_again(tmp_path: Path, extents: QueueExtents) -> None:
    file = QueueExtentsFile(Disk(), tmp_path / "queueextents.json")
    assert file.load(12) is NO_EXTENTS
    file.write(EXTENTS)
    crc = file.write(extents)
    assert file.load(crc) == extents
    assert [path.name for path in tmp_path.iterdir()] == ["queueextents.json"]


def test_under_another_checksum_they_say_nothing(tmp_path: Path) -> None:
    file = QueueExtentsFile(Disk(), tmp_path / "queueextents.json")
    crc = file.write(EXTENTS)
    assert file.load(0) is file.load(crc + 1) is NO_EXTENTS
    file.path.write_bytes(b'{"crc":1,"extents":{}}')
    assert file.load(crc32(file.path.read_bytes())) is NO_EXTENTS


@settings(deadline=None)
@given(data=st.data())
def test_a_file_that_is_not_as_it_was_written_says_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = QueueExtentsFile(Disk(), tmp_path_factory.getbasetemp() / "queueextents.json")
    crc = file.write(EXTENTS)
    content = bytearray(file.path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    file.path.write_bytes(content)
    assert file.load(crc) is NO_EXTENTS
