"""Each fault that is put into a sound store is found, once and by its name; else there is none."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from aerobee.spark.storefiles.audit import Finding, audit, plan_audit
from aerobee.spark.storefiles.audit_queues import QueueAudit
from aerobee.spark.storefiles.files import LogFiles, SegmentFile
from aerobee.store.format.checkpoint import CHECKPOINT, Checkpoint
from aerobee.store.format.names import RECOVERY_POINT, segment_name
from aerobee.store.format.record import HEAD, blank
from aerobee.store.format.recovery_point import RecoveryPoint, slot_of
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.tags import java_hash
from aerobee.store.format.unit import BLANK, UNIT
from tests.aerobee.spark.store_maker import NOON, Put, StoreMaker, store_options_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.spark.storefiles.segments import Segment

Found = list[tuple[str, int]]
AT = HEAD.offset


def findings(root: Path, split_bytes: int = 0, **given: object) -> list[Finding]:
    options = store_options_of(root, mode="audit", **given)
    if split_bytes:
        options = replace(options, split_bytes=split_bytes)
    return [found for piece in plan_audit(options) for found in audit(piece, options)]


def told(root: Path, split_bytes: int = 0, **given: object) -> Found:
    """Kind and place of everything found."""
    found = findings(root, split_bytes, **given)
    return sorted((one.kind, one.physical_offset) for one in found)


def filled(root: Path, count: int = 110) -> StoreMaker:
    maker = StoreMaker(root)
    for number in range(count):
        tags = {"TAGS": f"t{number % 4}"} if number % 3 else {}
        maker.put(b"body %d" % number, ("orders", "payments")[number % 2], 0, properties=tags)
    maker.write()
    return maker


@pytest.fixture
def store(tmp_path: Path) -> StoreMaker:
    return filled(tmp_path / "store")


@pytest.mark.parametrize("split_bytes", [0, 150, 1_000])
def test_nothing_is_found_in_a_sound_store(store: StoreMaker, split_bytes: int) -> None:
    assert findings(store.root, split_bytes) == []


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "big", signed=True)


DAMAGE: dict[str, Callable[[StoreMaker, Put], None]] = {
    "badMagic": lambda maker, put: maker.change(put.place + AT["magic"], b"\1\2\3\4"),
    "badSize": lambda maker, put: maker.change(put.place, number(1 << 20, 4)),
    "wrongOffset": lambda maker, put: maker.change(
        put.place + AT["physical_offset"], number(put.place + 1, 8)
    ),
    "badLengths": lambda maker, put: maker.change(put.place + AT["body_length"], number(1, 4)),
}
"""What makes a record unreadable."""


@pytest.mark.parametrize("split_bytes", [0, 150, 1_000])
@pytest.mark.parametrize("kind", DAMAGE)
def test_an_unreadable_record_is_one_row(store: StoreMaker, kind: str, split_bytes: int) -> None:
    put = store.puts[33]
    DAMAGE[kind](store, put)
    assert told(store.root, split_bytes) == [(kind, put.place)]


def test_zeros_in_the_middle_are_a_bad_size(store: StoreMaker) -> None:
    put = store.puts[33]
    store.change(put.place, bytes(put.size))
    assert told(store.root) == [("badSize", put.place)]


def test_a_wrong_body_is_a_wrong_crc(store: StoreMaker) -> None:
    put = store.puts[33]
    store.change(put.place + HEAD.size, b"B")
    (found,) = findings(store.root)
    assert found[:6] == (segment_name(0), put.place, "crc", put.topic, 0, put.queue_offset)


@pytest.mark.parametrize("split_bytes", [0, 150])
def test_time_that_goes_backwards(store: StoreMaker, split_bytes: int) -> None:
    put = store.puts[33]
    store.change(put.place + AT["store_timestamp"], number(NOON - 5_000, 8))
    (found,) = findings(store.root, split_bytes)
    assert (found.kind, found.physical_offset) == ("timeBackwards", put.place)
    assert found.detail == "stored 5032 ms before the message in front of it"


def test_time_that_goes_backwards_between_segments(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    while not maker.puts or maker.puts[-1].place < maker.segment_bytes:
        maker.put()
    first = maker.puts[-1]
    maker.write()
    maker.change(first.place + AT["store_timestamp"], number(NOON - 5_000, 8))
    (found,) = findings(tmp_path)
    assert found[:3] == (segment_name(4_096), first.place, "timeBackwards")


UNITS = {
    "nothing": ("cqMissing", bytes(20)),
    "filling": ("cqMissing", BLANK),
    "another place": ("cqMismatch", UNIT.pack(77, 120, 0)),
    "another size": ("cqMismatch", None),
    "another tag": ("cqTagMismatch", None),
}


@pytest.mark.parametrize("split_bytes", [0, 150])
@pytest.mark.parametrize("what", UNITS)
def test_a_unit_that_is_not_what_the_log_says(
    store: StoreMaker, what: str, split_bytes: int
) -> None:
    put = store.puts[33]
    kind, unit = UNITS[what]
    place, size, code = UNIT.unpack_from(store.units[put.topic, 0][put.queue_offset])
    if what == "another size":
        unit = UNIT.pack(place, size + 1, code)
    elif what == "another tag":
        unit = UNIT.pack(place, size, code + 1)
    assert unit is not None
    store.change_unit(put.topic, 0, put.queue_offset, unit)
    (found,) = findings(store.root, split_bytes)
    assert found[:6] == (segment_name(0), put.place, kind, put.topic, 0, put.queue_offset)


def test_a_unit_without_a_message_leads_nowhere(store: StoreMaker) -> None:
    put = store.puts[33]
    behind = max(store.units["orders", 0]) + 1
    store.change_unit("orders", 0, behind, UNIT.pack(store.puts[-1].place, 99, 0))
    (found,) = findings(store.root)
    assert (found.kind, found.queue_offset) == ("cqMismatch", behind)
    # Where the log cannot be read, units need no further word.
    store.change(put.place + 4, b"\0\0\0\0")
    assert {found.kind for found in findings(store.root)} == {"badMagic", "cqMismatch"}


def test_a_gap_in_the_numbers_of_a_queue(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for count in (0, 1, 2, 5, 6):
        maker.put(queue_offset=count)
    maker.write()
    (found,) = findings(tmp_path)
    assert (found.kind, found.queue_offset, found.detail) == ("queueGap", 5, "follows 2")


def test_a_wrong_number_in_the_log(store: StoreMaker) -> None:
    put = store.puts[33]
    store.change(put.place + AT["queue_offset"], number(1 << 60, 8))
    kinds = sorted(found.kind for found in findings(store.root))
    assert kinds == ["cqMismatch", "cqMissing", "queueGap"]
    store.change(put.place + AT["queue_offset"], number(-3, 8))
    kinds = sorted(found.kind for found in findings(store.root))
    assert kinds == ["cqMismatch", "queueGap"]


def test_a_torn_tail_is_one_row(store: StoreMaker) -> None:
    last = store.puts[-1]
    store.change(last.place + 60, bytes(last.size - 60))
    store.change_unit(last.topic, 0, last.queue_offset, bytes(20))
    (found,) = findings(store.root)
    assert (found.kind, found.physical_offset) == ("tail", last.place)
    assert "half written" in found.detail


def test_garbage_behind_the_data_is_damage(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path, segment_bytes=512 << 10)
    maker.put()
    maker.write()
    maker.change(maker.at, b"\x55" * (100 << 10))
    assert told(tmp_path) == [("badMagic", maker.at)]


def test_a_last_segment_without_a_record_is_damage(store: StoreMaker) -> None:
    behind = max(store.segments) + store.segment_bytes
    store.change(store.at, blank(behind - store.at))
    path = store.root / "commitlog" / segment_name(behind)
    path.write_bytes(bytes(200 << 10))
    assert findings(store.root) == []
    path.write_bytes(b"\x55" * (100 << 10))
    assert told(store.root) == [("badMagic", behind)]
    assert told(store.root, endingPhysicalOffset=behind) == []


@pytest.mark.parametrize("split_bytes", [0, 150])
def test_a_unit_that_leads_behind_the_log_leads_nowhere(
    store: StoreMaker, split_bytes: int
) -> None:
    number = max(store.units["orders", 0]) + 1
    place = store.at + 1_000
    store.change_unit("orders", 0, number, UNIT.pack(place, 99, 0))
    assert told(store.root, split_bytes) == [("cqMismatch", place)]
    assert told(store.root, split_bytes, endingPhysicalOffset=store.at) == []
    (store.root / "abort").touch()
    assert told(store.root, split_bytes) == [], "a broker in use may have written more"


# ── What is no fault ──


def test_what_a_broker_deletes_meanwhile_is_no_fault(
    store: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up takes the segment that is being looked at, then what led to nothing else."""
    options = store_options_of(store.root, mode="audit")
    first = plan_audit(options)[0]
    opened = LogFiles.opened

    def then_deleted(files: LogFiles, segment: Segment) -> SegmentFile:
        file = opened(files, segment)
        (store.root / "commitlog" / segment.name).unlink(missing_ok=True)
        for path in store.root.glob(f"consumequeue/*/*/{segment_name(0)}"):
            path.unlink()
        return file

    monkeypatch.setattr(LogFiles, "opened", then_deleted)
    assert list(audit(first, options)) == []


def test_a_topic_that_is_deleted_meanwhile_has_no_faults(
    store: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = store_options_of(store.root, mode="audit")
    pieces = plan_audit(options)
    compare = QueueAudit.compare

    def without_topic(queues: QueueAudit, *given: Any) -> Any:
        shutil.rmtree(store.root / "consumequeue" / "orders", ignore_errors=True)
        return compare(queues, *given)

    monkeypatch.setattr(QueueAudit, "compare", without_topic)
    assert list(audit(pieces[0], options)) == []


def test_queues_in_a_rocksdb_are_not_compared(store: StoreMaker) -> None:
    shutil.rmtree(store.root / "consumequeue")
    (store.root / "consumequeue").mkdir()
    (store.root / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    assert findings(store.root) == []


def test_units_that_the_next_start_writes_are_not_missing(store: StoreMaker) -> None:
    last = store.puts[-3:]
    for put in last:
        store.change_unit(put.topic, 0, put.queue_offset, bytes(20))
    assert [kind for kind, _ in told(store.root)] == ["cqMissing"] * 3
    (store.root / "abort").touch()
    assert told(store.root) == [], "no checkpoint: all may be pending"
    safe = Checkpoint(last[1].stored + 3_000, last[1].stored + 3_000)
    (store.root / "checkpoint").write_bytes(CHECKPOINT.write(safe))
    assert told(store.root) == [("cqMissing", put.place) for put in last[:2]]


def test_a_topic_made_anew_begins_anew(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for _ in range(30):
        maker.put()
    maker.units["orders", 0].clear()
    for _ in range(12):
        maker.put(b"anew")
    maker.write()
    for split_bytes in (0, 150):
        assert findings(tmp_path, split_bytes) == []


def test_messages_of_a_deleted_topic_have_no_units(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for _ in range(5):
        maker.put(topic="gone")
        maker.put()
    gone = maker.units.pop(("gone", 0))
    maker.write()
    assert findings(tmp_path) == []
    maker.units["gone", 1] = gone
    maker.write()
    assert {found.kind for found in findings(tmp_path)} == {"cqMissing", "cqMismatch"}


def test_a_queue_of_an_earlier_topic_is_told_from_a_lost_one(tmp_path: Path) -> None:
    """The broker's last recovery point has counted what it has; nothing adds to that later."""
    maker = StoreMaker(tmp_path)
    for number in range(6):
        put = maker.put(queue_id=number % 2)
    maker.units.pop(("orders", 1))
    maker.write()
    assert [found.kind for found in findings(tmp_path)] == ["cqMissing"] * 3
    for units, faults in ((3, 0), (6, 3)):
        point = RecoveryPoint(
            number=1,
            owner="aerobee 1 2",
            boot="",
            log_end=put.place + put.size,
            queues_end=put.place + put.size,
            queues_units=units,
            units=units,
            last=put.place,
            last_crc=0,
        )
        (tmp_path / RECOVERY_POINT).write_bytes(slot_of(point))
        assert len(findings(tmp_path)) == faults


def test_parked_messages_say_when_they_are_due(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for late, expected in ((5_000, []), (0, []), (-1, ["cqTagMismatch"])):
        put = maker.put(topic=SCHEDULE_TOPIC, properties={"DELAY": "2", "TAGS": "a"})
        unit = UNIT.pack(put.place, put.size, put.stored + late)
        maker.units[SCHEDULE_TOPIC, 0][put.queue_offset] = unit
        maker.write()
        assert [found.kind for found in findings(tmp_path)] == expected
    hashed = UNIT.pack(put.place, put.size, java_hash("a"))
    maker.change_unit(SCHEDULE_TOPIC, 0, put.queue_offset, hashed)
    assert findings(tmp_path) == [], "as 4.9 recovers them"


def test_what_is_not_dispatched_needs_no_unit(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    maker.put(b"half", sys_flag=4, unit=False)
    maker.put(b"rolled back", sys_flag=12, unit=False)
    maker.put(b"many", sys_flag=0x80, unit=False, queue_offset=17)
    maker.put(b"plain", queue_offset=0)
    maker.write()
    assert findings(tmp_path) == []


def test_expired_units_lead_in_front_of_the_log(store: StoreMaker) -> None:
    (store.root / "commitlog" / segment_name(0)).unlink()
    assert findings(store.root) == []


def test_a_log_alone_is_held_against_no_queues(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    maker.change(maker.puts[40].place + 4, b"\0\0\0\0")
    (tmp_path / "consumequeue").rename(tmp_path / "elsewhere")
    kinds = {found.kind for found in findings(tmp_path)}
    assert kinds == {"badMagic", "queueGap"}


def test_bounds_and_topics_limit_what_is_looked_at(store: StoreMaker) -> None:
    bad = [store.puts[20], store.puts[21], store.puts[90]]
    for put in bad:
        store.change(put.place + HEAD.size, b"B")
    assert len(findings(store.root)) == 3
    assert [found.topic for found in findings(store.root, topics="orders")] == ["orders"] * 2
    assert told(store.root, startingPhysicalOffset=bad[1].place) == [
        ("crc", bad[1].place),
        ("crc", bad[2].place),
    ]
    assert told(store.root, endingPhysicalOffset=bad[1].place) == [("crc", bad[0].place)]
