"""A store directory as messages: what is chosen, what is lost, what is damaged. No JVM."""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aerobee.errors import ConfigurationError, DataLossError, RecordDamagedError
from aerobee.spark.storefiles.files import LogFiles, SegmentFile
from aerobee.spark.storefiles.read import log_of, plan, read, tasks
from aerobee.spark.storefiles.segments import CLOCK_SLACK_MS
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import HEAD, blank
from aerobee.store.format.unit import BLANK, UNIT
from tests.aerobee.spark.store_maker import NOON, Put, StoreMaker, store_options_of

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.spark.storefiles.segments import Segment

COLUMNS = ("topic", "queueId", "queueOffset", "body", "commitLogOffset")
Rows = list[dict[str, Any]]


def rows_of(root: Path, columns: tuple[str, ...] = COLUMNS, **given: object) -> Rows:
    """All rows of a read, piece after piece."""
    options = store_options_of(root, **given)
    return [
        row
        for piece in plan(options)
        for batch in read(piece, options, columns)
        for row in batch.to_pylist()
    ]


def places(rows: Rows) -> list[int]:
    return [row["commitLogOffset"] for row in rows]


def placed(puts: list[Put]) -> list[int]:
    return [put.place for put in puts]


def filled(root: Path, count: int = 120, queue_units: int = 20) -> StoreMaker:
    maker = StoreMaker(root, queue_units=queue_units)
    for number in range(count):
        topic = ("orders", "payments", "SCHEDULE_TOPIC_XXXX")[number % 3]
        maker.put(b"body %d" % number, topic, number % 2, v6=number % 5 == 0)
    maker.write()
    return maker


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    return filled(tmp_path_factory.mktemp("store"))


@pytest.fixture
def own(tmp_path: Path) -> StoreMaker:
    """One to be damaged."""
    return filled(tmp_path / "own")


@pytest.fixture(params=["commitlog", "consumequeue"])
def via(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_everything_is_read_as_it_was_written(store: StoreMaker) -> None:
    rows = rows_of(store.root, excludeSystem=False)
    assert [tuple(row.values()) for row in rows] == [
        (put.topic, put.queue_id, put.queue_offset, put.body, put.place) for put in store.puts
    ]
    some = [put for put in store.puts if put.topic != "SCHEDULE_TOPIC_XXXX"]
    assert places(rows_of(store.root)) == placed(some)


def test_by_queue_the_same_messages_come_in_the_order_of_queues(store: StoreMaker) -> None:
    puts = sorted(store.puts, key=lambda put: (put.topic, put.queue_id, put.queue_offset))
    rows = rows_of(store.root, excludeSystem=False, via="consumequeue")
    assert places(rows) == placed(puts)
    assert [row["body"] for row in rows] == [put.body for put in puts]


def test_topics_are_chosen(store: StoreMaker, via: str) -> None:
    for topics in (["orders"], ["payments", "SCHEDULE_TOPIC_XXXX"]):
        rows = rows_of(store.root, via=via, topics=",".join(topics))
        assert sorted(places(rows)) == [put.place for put in store.puts if put.topic in topics]
    assert rows_of(store.root, via=via, topics="none-of-them") == []


def test_bounds_in_the_log_and_in_time_are_exact(store: StoreMaker, via: str) -> None:
    for low, high in ((0, 30), (17, 18), (50, 119), (119, 120)):
        first, last = store.puts[low], store.puts[high - 1]
        wanted = placed(store.puts[low:high])
        ending = last.place + 1
        rows = rows_of(
            store.root,
            startingPhysicalOffset=first.place,
            endingPhysicalOffset=ending,
            via=via,
            excludeSystem=False,
        )
        assert sorted(places(rows)) == wanted
        rows = rows_of(
            store.root,
            startingTimestamp=first.stored,
            endingTimestamp=last.stored + 1,
            via=via,
            excludeSystem=False,
        )
        assert sorted(places(rows)) == wanted


def test_segments_of_another_time_are_not_opened(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for number in range(100):
        maker.put(stored=NOON + number * CLOCK_SLACK_MS)
    maker.write()
    options = store_options_of(tmp_path, startingTimestamp=maker.puts[60].stored)
    assert 0 < len(log_of(options).parts) < len(maker.segments) / 2 + 2
    rows = rows_of(tmp_path, startingTimestamp=maker.puts[60].stored)
    assert places(rows) == placed(maker.puts[60:])


def test_a_clock_that_stepped_back_loses_no_row(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for number in range(100):
        maker.put(stored=NOON + (number if number < 50 else number - 40) * 1_000)
    maker.write()
    since = NOON + 45_000
    wanted = [put.place for put in maker.puts if put.stored >= since]
    assert places(rows_of(tmp_path, startingTimestamp=since)) == wanted


def test_messages_that_no_consumer_sees_belong_to_the_system(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    maker.put(b"half", sys_flag=4, unit=False)
    seen = maker.put(b"committed", sys_flag=8)
    maker.put(b"rolled back", sys_flag=12, unit=False)
    maker.write()
    assert places(rows_of(tmp_path)) == [seen.place]
    assert len(rows_of(tmp_path, excludeSystem=False)) == 3


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20
)
@given(split_bytes=st.integers(70, 6_000))
def test_any_split_size_gives_the_same_rows(store: StoreMaker, via: str, split_bytes: int) -> None:
    options = store_options_of(store.root, excludeSystem=False, via=via)
    small = replace(options, split_bytes=split_bytes)
    whole, pieces = plan(options), plan(small)
    assert len(pieces) >= len(whole)
    found = [
        row
        for piece in pieces
        for batch in read(piece, small, COLUMNS)
        for row in batch.to_pylist()
    ]
    assert found == rows_of(store.root, excludeSystem=False, via=via)


def test_only_the_last_segment_is_open(store: StoreMaker, via: str) -> None:
    last = max(store.segments)
    rows = rows_of(store.root, sealedOnly=True, excludeSystem=False, via=via)
    assert sorted(places(rows)) == [put.place for put in store.puts if put.place < last]


# ── What is damaged ──


def test_damage_in_the_middle_fails_and_says_where(own: StoreMaker, via: str) -> None:
    bad = own.puts[33]
    own.change(bad.place + 4, b"\0\0\0\1")
    with pytest.raises(RecordDamagedError, match=f"physical offset {bad.place} .*onCorrupt=drop"):
        rows_of(own.root, via=via)


def test_damage_is_left_out_on_demand_and_counted(
    own: StoreMaker, via: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [own.puts[33], own.puts[34], own.puts[60]]
    for put in bad:
        own.change(put.place + 4, b"\0\0\0\1")
    with caplog.at_level(logging.WARNING, "aerobee.spark.store"):
        rows = rows_of(own.root, via=via, excludeSystem=False, onCorrupt="drop")
    assert sorted(places(rows)) == [put.place for put in own.puts if put not in bad]
    assert f"physical offset {bad[0].place} " in caplog.text
    assert "damaged places were left out" in caplog.text


def test_a_wrong_body_is_found_by_its_crc_on_demand(own: StoreMaker, via: str) -> None:
    bad = own.puts[34]
    own.change(bad.place + HEAD.size + (24 if 34 % 5 == 0 else 0), b"B")
    assert len(rows_of(own.root, via=via)) == 80
    with pytest.raises(RecordDamagedError, match=f"physical offset {bad.place} .crc: body CRC"):
        rows_of(own.root, via=via, verifyCrc=True)
    rows = rows_of(own.root, via=via, verifyCrc=True, onCorrupt="drop")
    assert len(rows) == 79
    assert bad.place not in places(rows)


def test_a_torn_tail_is_no_damage(own: StoreMaker) -> None:
    last = own.puts[-1]
    own.change(last.place + 60, bytes(last.size - 60))
    assert places(rows_of(own.root, excludeSystem=False)) == placed(own.puts[:-1])


def test_garbage_behind_the_data_is(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path, segment_bytes=512 << 10)
    maker.put()
    maker.write()
    maker.change(maker.at, b"\x55" * (100 << 10))
    with pytest.raises(RecordDamagedError, match=f"physical offset {maker.at}"):
        rows_of(tmp_path)
    assert len(rows_of(tmp_path, onCorrupt="drop")) == 1
    assert len(rows_of(tmp_path, endingPhysicalOffset=maker.at)) == 1


@pytest.mark.parametrize(
    "unit",
    [
        bytes(20),
        b"\0\0\0\0\0\0\0\0\x7f\xff\xff\xff" + bytes(8),
        b"\0" * 7 + b"\1\0\0\0\x70" + bytes(8),
    ],
)
def test_a_unit_that_leads_nowhere_is_damage(own: StoreMaker, unit: bytes) -> None:
    own.change_unit("orders", 0, 7, unit)
    with pytest.raises(RecordDamagedError, match="queue offset 7"):
        rows_of(own.root, via="consumequeue", topics="orders")
    rows = rows_of(own.root, via="consumequeue", topics="orders", onCorrupt="drop")
    assert len(rows) == 39


def test_a_unit_that_leads_to_another_message_is_damage(own: StoreMaker) -> None:
    own.change_unit("orders", 0, 7, own.units["orders", 0][8])
    with pytest.raises(RecordDamagedError, match="queue offset 7 leads to another message"):
        rows_of(own.root, via="consumequeue", topics="orders")


@pytest.mark.parametrize("unit", [bytes(20), UNIT.pack(1 << 40, 100, 0)])
@pytest.mark.parametrize("lost", [range(5, 6), range(9, 11), range(6, 14), range(1, 19)])
def test_a_hole_in_a_queue_is_damage_however_the_queue_is_cut(
    own: StoreMaker, unit: bytes, lost: range, caplog: pytest.LogCaptureFixture
) -> None:
    """A piece of a plan is only a few units here, so that holes begin, end and fill some."""
    for number in lost:
        own.change_unit("orders", 0, number, unit)
    options = store_options_of(own.root, via="consumequeue", topics="orders")
    options = replace(options, split_bytes=700)
    pieces = plan(options)
    assert len(pieces) > 4
    with pytest.raises(RecordDamagedError, match=r"queue offset \d+ leads to no message"):
        [list(read(piece, options, COLUMNS)) for piece in pieces]
    options = replace(options, on_corrupt="drop")
    with caplog.at_level(logging.WARNING, "aerobee.spark.store"):
        found = [batch.num_rows for piece in pieces for batch in read(piece, options, COLUMNS)]
    assert sum(found) == 40 - len(lost)
    assert caplog.text.count("leads to no message") == len(lost)


def test_filling_in_front_of_a_queue_is_no_damage(own: StoreMaker) -> None:
    """A queue that was made anew behind the start of the log."""
    for number in range(5):
        own.change_unit("orders", 0, number, BLANK)
    rows = rows_of(own.root, via="consumequeue", topics="orders")
    assert len(rows) == 35


def test_a_last_segment_without_a_record_is_damage_unless_nothing_is_in_it(own: StoreMaker) -> None:
    behind = max(own.segments) + own.segment_bytes
    own.change(own.at, blank(behind - own.at))
    path = own.root / "commitlog" / segment_name(behind)
    for content in (bytes(4_096), b"\x55" * 500 + bytes(3_500), bytes(200 << 10)):
        path.write_bytes(content)
        assert len(rows_of(own.root)) == 80
    path.write_bytes(b"\x55" * (100 << 10))
    with pytest.raises(RecordDamagedError, match=f"physical offset {behind} .badMagic"):
        rows_of(own.root)
    assert len(rows_of(own.root, onCorrupt="drop")) == 80
    assert len(rows_of(own.root, sealedOnly=True)) == 80


# ── What is not there ──


def test_a_missing_segment_is_a_loss(own: StoreMaker, via: str) -> None:
    second = sorted(own.segments)[1]
    os.unlink(own.root / "commitlog" / f"{second:020d}")
    with pytest.raises(DataLossError, match="are missing between"):
        rows_of(own.root, via=via)
    rows = rows_of(own.root, via=via, failOnDataLoss=False, excludeSystem=False)
    third = sorted(own.segments)[2]
    wanted = [put.place for put in own.puts if not second <= put.place < third]
    assert sorted(places(rows)) == wanted


def test_a_start_that_is_deleted_is_a_loss(own: StoreMaker, via: str) -> None:
    first, second = sorted(own.segments)[:2]
    os.unlink(own.root / "commitlog" / f"{first:020d}")
    wanted = [put.place for put in own.puts if put.place >= second]
    assert sorted(places(rows_of(own.root, via=via, excludeSystem=False))) == wanted
    for asked in (0, 5):
        with pytest.raises(DataLossError, match=f"the log in .* begins at {second}"):
            rows_of(own.root, startingPhysicalOffset=asked, via=via, excludeSystem=False)
    rows = rows_of(
        own.root, startingPhysicalOffset=5, failOnDataLoss=False, via=via, excludeSystem=False
    )
    assert sorted(places(rows)) == wanted


def test_a_segment_deleted_behind_the_plan_is_a_loss(own: StoreMaker, via: str) -> None:
    for fail in (True, False):
        options = store_options_of(own.root, via=via, failOnDataLoss=fail, excludeSystem=False)
        pieces = plan(options)
        first = own.root / "commitlog" / f"{0:020d}"
        first.rename(own.root / "kept")
        if fail:
            with pytest.raises(DataLossError, match="was deleted while"):
                [list(read(piece, options, COLUMNS)) for piece in pieces]
        else:
            found = [batch.num_rows for piece in pieces for batch in read(piece, options, COLUMNS)]
            second = sorted(own.segments)[1]
            assert sum(found) == sum(put.place >= second for put in own.puts)
        shutil.move(own.root / "kept", first)


def test_a_segment_that_is_missing_where_a_read_begins_or_ends_is_a_loss(
    own: StoreMaker, via: str
) -> None:
    second, third = sorted(own.segments)[1:3]
    os.unlink(own.root / "commitlog" / segment_name(second))
    with pytest.raises(DataLossError, match="are missing between"):
        rows_of(own.root, via=via, startingPhysicalOffset=second + 9)
    with pytest.raises(DataLossError, match="are missing between"):
        rows_of(own.root, via=via, endingPhysicalOffset=second + 9)
    assert len(rows_of(own.root, via=via, startingPhysicalOffset=third)) > 0
    assert len(rows_of(own.root, via=via, endingPhysicalOffset=second)) > 0


def test_a_segment_deleted_while_its_queue_is_read_is_a_loss_and_no_damage(
    own: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = sorted(own.segments)[1:3]
    opened = LogFiles.opened

    def deleted_first(files: LogFiles, segment: Segment) -> SegmentFile:
        if segment.start == second:
            (own.root / "commitlog" / segment.name).unlink(missing_ok=True)
        return opened(files, segment)

    options = store_options_of(own.root, via="consumequeue", failOnDataLoss=False)
    pieces = plan(options)
    monkeypatch.setattr(LogFiles, "opened", deleted_first)
    found = [batch.num_rows for piece in pieces for batch in read(piece, options, COLUMNS)]
    seen = [put for put in own.puts if put.topic != "SCHEDULE_TOPIC_XXXX"]
    assert sum(found) == sum(not second <= put.place < third for put in seen)


def test_a_file_of_a_queue_deleted_behind_the_plan_is_a_loss_if_it_led_there(
    tmp_path: Path,
) -> None:
    own = filled(tmp_path, queue_units=5)
    second = sorted(own.segments)[1]
    options = store_options_of(tmp_path, via="consumequeue")
    later = store_options_of(tmp_path, via="consumequeue", startingPhysicalOffset=second)
    pieces, later_pieces = plan(options), plan(later)
    # As the clean-up does it: the segment, then what led to nothing else.
    os.unlink(tmp_path / "commitlog" / segment_name(0))
    for topic in ("orders", "payments"):
        for queue_id in (0, 1):
            path = tmp_path / "consumequeue" / topic / str(queue_id) / segment_name(0)
            assert UNIT.read(path.read_bytes(), 80).physical_offset < second
            path.unlink()
    for piece in pieces:
        with pytest.raises(DataLossError, match="was deleted while"):
            list(read(piece, options, COLUMNS))
    found = [batch.num_rows for piece in later_pieces for batch in read(piece, later, COLUMNS)]
    seen = [put for put in own.puts if put.topic != "SCHEDULE_TOPIC_XXXX"]
    assert sum(found) == sum(put.place >= second for put in seen)
    shutil.rmtree(tmp_path / "consumequeue" / "orders" / "0")
    with pytest.raises(DataLossError, match="was deleted while"):
        [list(read(piece, later, COLUMNS)) for piece in later_pieces]


def test_queues_of_another_kind_are_refused_by_name(own: StoreMaker) -> None:
    (own.root / "batchconsumequeue" / "many" / "0").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="the queues of topic many hold batches"):
        rows_of(own.root, via="consumequeue")
    with pytest.raises(ConfigurationError, match="the queues of topic many hold batches"):
        rows_of(own.root, via="consumequeue", topics="orders,many")
    assert len(rows_of(own.root, via="consumequeue", topics="orders")) == 40
    (own.root / "consumequeue" / "CURRENT").touch()
    with pytest.raises(ConfigurationError, match="no consume queues in files"):
        rows_of(own.root, via="consumequeue", topics="orders")


def test_a_log_alone_can_be_read_but_not_by_queue(own: StoreMaker) -> None:
    shutil.rmtree(own.root / "consumequeue")
    shutil.rmtree(own.root / "config")
    assert len(rows_of(own.root)) == 80
    with pytest.raises(ConfigurationError, match="no consume queues"):
        rows_of(own.root, via="consumequeue")


def test_what_arrives_behind_the_plan_is_not_read(own: StoreMaker, via: str) -> None:
    options = store_options_of(own.root, via=via, excludeSystem=False)
    pieces = plan(options)
    own.put(b"late", "orders", 0)
    own.write()
    found = [batch.num_rows for piece in pieces for batch in read(piece, options, COLUMNS)]
    assert sum(found) == 120
    assert len(rows_of(own.root, via=via, excludeSystem=False)) == 121


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert rows_of(tmp_path) == []


def test_small_queues_share_tasks_and_keep_their_order(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for number in range(60):
        maker.put(b"%d" % number, "small", number % 30)
    maker.write()
    options = store_options_of(tmp_path, via="consumequeue")
    assert len(plan(options)) == 30
    [together] = tasks(options)
    assert list(together) == list(plan(options))
    few = store_options_of(tmp_path, via="commitlog")
    assert tasks(few) == [(split,) for split in plan(few)]
