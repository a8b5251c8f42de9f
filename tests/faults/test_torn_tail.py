"""Every way in which the end of the log can be torn: what is left is the last whole record."""

import shutil
from pathlib import Path

import pytest

from aerobee.store.format.record import Record, read
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_model import (
    Sent,
    StoreModel,
    check_directory,
    draft,
    log_records,
    open_store,
    read_queue,
)

pytestmark = pytest.mark.faults

MESSAGES = [
    Sent(f"body {number} ".encode() * number, properties)
    for number, properties in enumerate(
        [
            b"",
            b"TAGS\x01A\x02",
            b"KEYS\x01k1 k2\x02UNIQ_KEY\x017F000001AAAA18B4AAC2000000000001\x02",
            b"",
            b"TAGS\x01B",
            b"KEYS\x01k\x02UNIQ_KEY\x017F000001AAAA18B4AAC2000000000002\x02TAGS\x01A\x02",
        ]
    )
]


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, list[tuple[int, bytes]]]:
    """A store killed in the middle of its work, and the records in its log."""
    root = tmp_path / "killed"
    model = StoreModel(root)
    for number, sent in enumerate(MESSAGES):
        model.put("T", number % 2, sent)
        model.store.dispatch()
    model.disk.kill()
    return root, log_records(root)


def recover_torn(root: Path, scratch: Path, content: bytes) -> list[Record]:
    """Put `content` in the place of the segment, start, check, and say what is left."""
    if scratch.exists():
        shutil.rmtree(scratch)
    shutil.copytree(root, scratch)
    [segment] = (scratch / "commitlog").iterdir()
    segment.write_bytes(content)
    disk = FaultyDisk(scratch)
    store, recovery = open_store(scratch, disk)
    assert not recovery.clean
    check_directory(scratch)
    left = log_records(scratch)
    assert recovery.end_offset == sum(len(data) for _, data in left)
    assert store.max_offset("T", 0) + store.max_offset("T", 1) == len(left)
    after = {path: path.read_bytes() for path in scratch.rglob("0*") if path.is_file()}
    disk.kill()
    # Recovering what was recovered finds nothing to do.
    _, again = open_store(scratch, disk)
    assert (again.end_offset, again.cut_bytes) == (recovery.end_offset, 0)
    assert after == {path: path.read_bytes() for path in scratch.rglob("0*") if path.is_file()}
    disk.kill()
    return [read(data) for _, data in left]


@pytest.mark.parametrize("fill", [0x00, 0xFF])
def test_every_prefix_of_the_last_three_records_recovers_to_the_last_whole_one(
    tmp_path: Path, torn: tuple[Path, list[tuple[int, bytes]]], fill: int
) -> None:
    root, records = torn
    [segment] = (root / "commitlog").iterdir()
    whole = segment.read_bytes()
    expected = [read(data) for _, data in records]
    end = records[-1][0] + len(records[-1][1])
    for cut in range(records[-3][0], end + 1):
        content = whole[:cut] + bytes([fill]) * (end - cut) + whole[end:]
        left = recover_torn(root, tmp_path / "scratch", content)
        intact = [
            record
            for record, (at, data) in zip(expected, records, strict=True)
            if content[at : at + len(data)] == data
        ]
        assert left == expected[: len(intact)], cut


def test_old_records_of_the_same_place_never_mix_with_new_ones(
    tmp_path: Path, torn: tuple[Path, list[tuple[int, bytes]]]
) -> None:
    """Bytes of an earlier life lie behind the tear; a body that is not as sent is never served."""
    root, records = torn
    [segment] = (root / "commitlog").iterdir()
    whole = segment.read_bytes()
    expected = [read(data) for _, data in records]
    end = records[-1][0] + len(records[-1][1])
    old = whole.replace(b"body", b"BODY").replace(b"7F000001", b"0A000001")
    for cut in range(records[-3][0], end + 1):
        left = recover_torn(root, tmp_path / "scratch", whole[:cut] + old[cut:])
        assert len(left) >= sum(at + len(data) <= cut for at, data in records)
        for record, sent in zip(left, expected, strict=False):
            # Only the body has a checksum: letters of a property may be those of an old record
            # that had the same lengths all over, which is why the tail is zeroed on every start.
            assert record[:14] == sent[:14]
            assert record.body == sent.body


def test_a_valid_old_record_behind_the_cut_does_not_come_back_to_life(tmp_path: Path) -> None:
    root = tmp_path / "d"
    model = StoreModel(root)
    for number in range(10):
        model.put("T", 0, Sent(b"old %d" % number, b""))
    model.disk.kill()
    records = log_records(root)
    [segment] = (root / "commitlog").iterdir()
    damaged = bytearray(segment.read_bytes())
    damaged[records[5][0] + 90] ^= 1
    segment.write_bytes(damaged)
    # Of what was not synced a power cut may take any page; after a kill this would be damage.
    disk = FaultyDisk(root)
    store, recovery = open_store(root, disk, model.clock)
    assert recovery.end_offset == records[5][0]
    assert recovery.cut_bytes >= records[9][0] - records[5][0]
    assert store.put(draft(body=b"new 5")).physical_offset == records[5][0]
    store.dispatch()
    disk.kill()
    store, recovery = open_store(root, disk, model.clock)
    assert recovery.end_offset == records[6][0]
    assert [sent.body for sent in read_queue(store, "T", 0)][5:] == [b"new 5"]
    disk.kill()


def test_a_blank_cut_short_is_written_again(tmp_path: Path) -> None:
    model = StoreModel(tmp_path / "d")
    sent = Sent(b"x" * 700, b"")
    while model.store.commit_log.max_offset < 4_096:
        model.put("T", 0, sent)
    model.disk.kill()
    first, second = sorted((tmp_path / "d" / "commitlog").iterdir())
    whole = first.read_bytes()
    records = log_records(tmp_path / "d")
    blank_at = sum(len(data) for at, data in records if at < 4_096)
    for cut in range(blank_at, blank_at + 8):
        scratch = tmp_path / f"{cut}"
        shutil.copytree(tmp_path / "d", scratch)
        (scratch / "commitlog" / first.name).write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        (scratch / "commitlog" / second.name).write_bytes(bytes(len(whole)))
        again = StoreModel(scratch)
        assert again.recovery.end_offset == blank_at
        result = again.store.put(draft(body=sent.body))
        assert result.physical_offset == 4_096
        again.crash()
        check_directory(scratch)
        again.disk.kill()
