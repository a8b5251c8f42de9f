"""Dispatch from the hand-over, from the log, and from one to the other."""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.config import FlushDiskType
from aerobee.store.files.disk import Disk
from aerobee.store.format.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    encode,
)
from aerobee.store.format.tags import java_hash
from aerobee.store.message_store import MessageStore
from aerobee.store.queues.dispatch import RUN_PIECE, DispatchService
from tests.kit.records import changed
from tests.kit.running_store import running_store
from tests.kit.store_checker import check_running
from tests.kit.store_model import (
    ManualClock,
    Sent,
    batch_body,
    draft,
    open_store,
    read_queue,
)

if TYPE_CHECKING:
    from aerobee.store.queues.dispatch_request import DispatchRequest

TAGS = b"TAGS\x01TagA\x02"


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return open_store(tmp_path, Disk(), ManualClock())[0]


def put(
    store: MessageStore,
    count: int = 1,
    queue_id: int = 0,
    body: bytes = b"hello",
    properties: bytes = b"",
) -> None:
    for _ in range(count):
        store.put(draft(queue_id=queue_id, body=body, properties=properties))


def test_messages_can_be_read_when_they_were_dispatched_not_before(store: MessageStore) -> None:
    put(store, 2)
    assert store.max_offset("T", 0) == 0
    assert store.dispatch_behind_bytes > 0
    store.dispatch()
    assert store.max_offset("T", 0) == 2
    assert store.dispatch_behind_bytes == 0
    assert store.stats.dispatched == 2
    assert store.stats.dispatch_parsed == 0


def test_arrivals_tell_what_a_held_pull_needs(store: MessageStore) -> None:
    arrivals: list[tuple[object, ...]] = []
    store.arrivals.add(lambda *arrival: arrivals.append(arrival))
    stored = store.put(draft(queue_id=3, properties=TAGS)).store_timestamp
    store.put(draft(queue_id=3))
    assert arrivals == []
    store.dispatch()
    assert arrivals == [
        ("T", 3, 1, java_hash("TagA"), stored, TAGS),
        ("T", 3, 2, 0, stored, b""),
    ]


def test_a_message_can_be_read_when_its_arrival_is_told(store: MessageStore) -> None:
    seen: list[tuple[int, int]] = []
    store.arrivals.add(
        lambda topic, queue_id, max_offset, *_: seen.append(
            (max_offset, store.max_offset(topic, queue_id))
        )
    )
    put(store, 3)
    store.dispatch()
    assert seen == [(1, 1), (2, 2), (3, 3)]


def test_a_message_put_while_arrivals_are_told_is_dispatched_in_the_next_round(
    store: MessageStore,
) -> None:
    def answer(topic: str, queue_id: int, max_offset: int, *_: object) -> None:
        if max_offset < 5:
            put(store)

    store.arrivals.add(answer)
    put(store)
    for expected in (1, 2, 3, 4, 5, 5):
        store.dispatch()
        assert store.max_offset("T", 0) == expected
    check_running(store)


def test_followers_get_every_record_behind_its_queue(store: MessageStore) -> None:
    seen: list[DispatchRequest] = []
    store.dispatcher.followers.append(seen.append)
    put(store, 2)
    store.dispatch()
    store.dispatcher.pending.clear()
    put(store)
    store.dispatcher.pending.clear()
    store.dispatch()
    assert [(request.queue.topic, request.queue_offset) for request in seen] == [
        ("T", 0),
        ("T", 1),
        ("T", 2),
    ]
    assert [request.physical_offset for request in seen] == [0, 97, 194]


@pytest.mark.parametrize("parsed", [False, True])
def test_prepared_and_rolled_back_take_no_place_in_a_queue(
    store: MessageStore, parsed: bool
) -> None:
    for sys_flag in (0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0):
        message = draft()
        message.sys_flag = sys_flag
        store.put(message)
    if parsed:
        store.dispatcher.pending.clear()
    store.dispatch()
    assert store.max_offset("T", 0) == 3
    assert store.dispatch_behind_bytes == 0
    check_running(store)


def test_a_parsed_record_gets_the_code_of_its_tags(store: MessageStore) -> None:
    put(store, properties=TAGS)
    store.dispatcher.pending.clear()
    store.dispatch()
    unit = store.queues.table["T", 0].unit(0)
    assert unit is not None
    assert unit.tags_code == java_hash("TagA")
    assert store.stats.dispatch_parsed == 1


@given(st.lists(st.sampled_from(["put", "dispatch", "drop", "roll"]), max_size=40))
def test_hand_over_and_log_give_the_same_queue(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    store, _ = open_store(tmp_path_factory.mktemp("store"), Disk(), ManualClock())
    sent = []
    for number, step in enumerate(steps):
        if step in ("put", "roll"):
            body = str(number).encode() + bytes(2_000 if step == "roll" else 0)
            sent.append(Sent(body, b""))
            put(store, body=body)
        elif step == "dispatch":
            store.dispatch()
        else:
            store.dispatcher.pending.clear()
    store.dispatch()
    assert read_queue(store, "T", 0) == sent
    check_running(store)


def test_a_full_hand_over_is_dropped_and_made_up_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.queues.dispatch.PENDING_MAX", 10)
    put(store, 35)
    assert store.stats.dispatch_fallbacks == 3
    assert len(store.dispatcher.pending) == 5
    store.dispatch()
    assert store.max_offset("T", 0) == 35
    assert store.stats.dispatch_parsed == 30


def test_parsing_is_done_in_batches(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.store.queues.dispatch.PARSE_BATCH", 10)
    put(store, 25)
    store.dispatcher.pending.clear()
    put(store, 1)
    ends = []
    while store.dispatch_behind_bytes:
        store.dispatch()
        ends.append(store.max_offset("T", 0))
    assert ends == [10, 20, 26]


def test_long_records_are_parsed_in_smaller_batches(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: what is parsed of each are its properties, and they may be long."""
    put(store, 25)
    fifth = store.commit_log.max_offset // 5
    monkeypatch.setattr("aerobee.store.queues.dispatch.PARSE_BYTES", fifth)
    store.dispatcher.pending.clear()
    steps = 0
    while store.dispatch_behind_bytes:
        store.dispatch()
        steps += 1
    assert 3 <= steps <= 6
    assert store.max_offset("T", 0) == 25


def test_what_a_sync_released_is_handed_over_in_batches(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.queues.dispatch.HAND_OVER_BATCH", 10)
    put(store, 25)
    ends = []
    while store.dispatch_behind_bytes:
        store.dispatch()
        ends.append(store.max_offset("T", 0))
    assert ends == [10, 20, 25]
    assert store.stats.dispatch_parsed == 0


@pytest.mark.parametrize("form", ["single", "run", "parsed"])
def test_a_step_ends_in_time_whatever_arrivals_cost_and_the_next_one_continues(
    tmp_path: Path, form: str
) -> None:
    clock = ManualClock()
    store, _ = open_store(tmp_path, Disk(), clock, mapped_file_size_commit_log_bytes=1 << 18)
    told: list[tuple[int, int]] = []

    def slow(topic: str, queue_id: int, max_offset: int, *_: object) -> None:
        told.append((max_offset, store.max_offset(topic, queue_id)))
        clock.ms += 1

    store.arrivals.add(slow)
    if form == "run":
        put_run(store, *[b"x"] * 300)
    else:
        put(store, 300)
    if form == "parsed":
        store.dispatcher.pending.clear()
    followed: list[int] = []
    store.dispatcher.followers.append(lambda one: followed.append(one.queue_offset))
    store.dispatcher.run_followers.append(
        lambda one: followed.extend(each.queue_offset for each in one.each())
    )
    steps = [0]
    while store.dispatch():
        steps.append(len(told))
    steps.append(len(told))
    assert [offset for offset, _ in told] == [*range(1, 301)]
    assert followed == [*range(300)]
    longest = max(after - before for before, after in pairwise(steps))
    assert longest <= {"single": 8, "run": RUN_PIECE, "parsed": 6}[form]
    assert all(end - offset < RUN_PIECE for offset, end in told), "never far ahead of what is told"
    assert store.dispatch_behind_bytes == 0
    check_running(store)


def test_of_a_long_run_the_rest_is_one_request_when_nobody_waits_any_more(
    store: MessageStore,
) -> None:
    seen: list[int] = []
    store.arrivals.add(lambda topic, queue_id, max_offset, *_: max_offset >= 3)
    store.dispatcher.run_followers.append(lambda one: seen.append(one.queue_offset))
    put_run(store, *[b""] * (RUN_PIECE + 3), properties=b"")
    store.dispatch()
    assert seen == [0, RUN_PIECE]
    assert store.max_offset("T", 0) == RUN_PIECE + 3
    assert store.dispatch_behind_bytes == 0
    check_running(store)


@pytest.mark.trio
async def test_what_a_round_left_over_needs_no_other_round_and_no_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr("aerobee.store.queues.dispatch.HAND_OVER_BATCH", 10)
    async with running_store(tmp_path, Disk()) as store:
        await trio.testing.wait_all_tasks_blocked()
        put(store, 25)
        store.dispatch()
        assert store.max_offset("T", 0) == 10
        await trio.testing.wait_all_tasks_blocked()
        assert store.max_offset("T", 0) == 25, "the clock did not move"


def test_a_gap_stops_only_its_queue_and_misplaces_nothing(store: MessageStore) -> None:
    put(store, 1, queue_id=0)
    put(store, 1, queue_id=1)
    store.dispatch()
    store.queues.table["T", 0].next_offset = 5
    put(store, 2, queue_id=0)
    put(store, 2, queue_id=1)
    store.dispatch()
    assert store.max_offset("T", 0) == 1
    assert store.max_offset("T", 1) == 3
    assert store.queues.table["T", 0].stopped
    assert store.stats.queues_stopped == 1
    assert store.dispatch_behind_bytes == 0


def test_a_stopped_queue_is_rebuilt_by_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock()
    store, _ = open_store(tmp_path, Disk(), clock)
    put(store, 30)
    store.dispatch()
    queue = store.queues.table["T", 0]
    queue.end_offset -= 3
    del queue.tail[-60:]
    put(store, 3)
    store.dispatch()
    assert queue.stopped
    assert not trio.run(store.close)
    store, recovery = open_store(tmp_path, Disk(), clock)
    assert not recovery.clean
    assert store.max_offset("T", 0) == 33
    check_running(store)


def test_bytes_that_are_no_record_are_passed_over(store: MessageStore) -> None:
    put(store, 1, body=b"first")
    bad = store.commit_log.max_offset
    put(store, 1, body=b"second")
    put(store, 2, body=bytes(2_500))
    assert store.commit_log.queue.files[0].full
    store.dispatcher.pending.clear()
    store.commit_log.queue.files[0].pages[bad + 4] ^= 0xFF
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert store.max_offset("T", 0) == 1
    assert store.stats.queues_stopped == 1, "what follows has a gap in front"


def test_what_was_handed_over_is_not_lost_behind_bytes_that_are_no_record(
    store: MessageStore,
) -> None:
    bad = store.commit_log.max_offset
    put(store, 1, queue_id=0)
    store.dispatcher.pending.clear()
    put(store, 2, queue_id=1)
    assert store.commit_log.tail is not None
    store.commit_log.tail.pages[bad + 4] ^= 0xFF
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert store.max_offset("T", 1) == 2


def test_under_sync_flush_nothing_is_dispatched_before_the_disk_has_it(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(store, 3)
    store.dispatch()
    assert store.max_offset("T", 0) == 0
    plan = store.commit_log.plan_sync()
    put(store, 2)
    store.commit_log.sync(plan)
    store.commit_log.complete(plan)
    store.dispatch()
    assert store.max_offset("T", 0) == 3
    store.dispatcher.pending.clear()
    store.dispatch()
    assert store.max_offset("T", 0) == 3


@pytest.mark.trio
async def test_without_a_round_of_the_reactor_dispatch_goes_on(tmp_path: Path) -> None:
    moved = trio.Event()
    async with running_store(tmp_path, Disk()) as store:
        store.after_flush.add(moved.set)
        put(store, 3)
        with trio.fail_after(60):
            await moved.wait()
        assert store.max_offset("T", 0) == 3


@pytest.mark.trio
async def test_the_service_does_not_spin_on_what_cannot_be_dispatched(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls: list[float] = []
    service = DispatchService(lambda: calls.append(trio.current_time()), lambda: 5, lambda: None)
    with trio.move_on_after(1):
        await service.run()
    assert 10 <= len(calls) <= 21


def forged(store: MessageStore, queue_offset: int = 1, **fields: Any) -> None:
    """A record in the log that no put has made; dispatch finds it there by itself."""
    at = store.commit_log.max_offset
    stored = store.commit_log.last_store_timestamp
    odd = changed(draft(body=b"odd"), **fields)
    assert store.commit_log.append(encode(odd, queue_offset, at, stored), stored)


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": ".."},
        {"topic": "../../T"},
        {"queue_id": -1},
        {"queue_offset": -1},
        {"queue_offset": 2**63 - 1},
    ],
    ids=str,
)
def test_a_record_that_can_have_no_place_stops_no_queue(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    store, _ = open_store(tmp_path / "store", Disk(), ManualClock())
    put(store)
    store.dispatch()
    forged(store, **fields)
    put(store)
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert store.max_offset("T", 0) == 2
    assert not store.stats.queues_stopped
    assert not [path for path in tmp_path.iterdir() if path.name != "store"]


def offer_headers(store: MessageStore, begin: int) -> None:
    """What is in the log from there on, as who copies it from another log says it."""
    store.dispatcher.pending.clear()
    headers = [header for _, header in store.commit_log.walk(begin)]
    store.dispatcher.offer_headers(begin, headers)


def test_headers_of_copied_records_need_no_parsing(store: MessageStore) -> None:
    begin = 0
    for count in (3, 1, 5):
        put(store, count, properties=TAGS)
        put(store, 1, queue_id=1, body=b"other")
        offer_headers(store, begin)
        store.dispatch()
        begin = store.commit_log.max_offset
    assert store.stats.dispatch_parsed == 0
    assert read_queue(store, "T", 0) == [Sent(b"hello", TAGS)] * 9
    assert read_queue(store, "T", 1) == [Sent(b"other", b"")] * 3
    check_running(store)


def test_copied_records_of_new_queues_are_counted_and_prepared_ones_are_not(
    store: MessageStore,
) -> None:
    put(store)
    for queue_id, queue_offset, sys_flag in ((5, 7, 0), (6, 9, TRANSACTION_PREPARED)):
        forged(store, queue_offset, queue_id=queue_id, sys_flag=sys_flag)
    offer_headers(store, 0)
    assert store.queues.table["T", 5].next_offset == 8
    assert store.queues.table["T", 6].next_offset == 0


def test_a_copied_record_that_can_have_no_place_is_noted_in_its_turn(store: MessageStore) -> None:
    put(store)
    forged(store, topic="../T")
    put(store)
    offer_headers(store, 0)
    assert not store.dispatcher.pending
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    assert store.max_offset("T", 0) == 2
    assert store.stats.set_aside == {"dispatch": 1}


def test_an_arrival_that_fails_is_told_of_and_the_next_one_comes(store: MessageStore) -> None:
    seen: list[int] = []

    def arrival(topic: str, queue_id: int, max_offset: int, *_: object) -> None:
        if max_offset == 2:
            raise ValueError("a filter that this message broke")
        seen.append(max_offset)

    store.arrivals.add(arrival)
    put(store, 3)
    store.dispatch()
    assert seen == [1, 3]
    assert store.max_offset("T", 0) == 3
    assert store.stats.set_aside == {"dispatch": 1}


def put_run(store: MessageStore, *bodies: bytes, properties: bytes = b"") -> None:
    """A batch, which is dispatched as one run."""
    store.put_batch(draft(), batch_body([Sent(body, properties) for body in bodies]))


def test_of_a_run_each_message_is_told_of_even_behind_one_that_fails(store: MessageStore) -> None:
    seen: list[tuple[int, int]] = []

    def arrival(topic: str, queue_id: int, max_offset: int, code: int, *_: object) -> None:
        if max_offset == 2:
            raise ValueError("a filter that this message broke")
        seen.append((max_offset, code))

    store.arrivals.add(arrival)
    put_run(store, b"a", b"b", b"c", properties=TAGS)
    store.dispatch()
    assert seen == [(1, java_hash("TagA")), (3, java_hash("TagA"))]
    assert store.max_offset("T", 0) == 3
    assert store.stats.set_aside == {"dispatch": 1}
    last = store.queues.table["T", 0].unit(2)
    assert last is not None
    assert store.dispatcher.last_position == last.physical_offset


def test_of_a_run_nobody_is_told_more_when_nobody_waits_for_its_queue(
    store: MessageStore,
) -> None:
    """M1: a batch of 40,000 was told one by one to pulls that wait for other queues."""
    seen: list[int] = []
    more: list[int] = []

    def content(topic: str, queue_id: int, max_offset: int, *_: object) -> bool:
        seen.append(max_offset)
        return max_offset >= 2

    def eager(topic: str, queue_id: int, max_offset: int, *_: object) -> bool:
        more.append(max_offset)
        return max_offset >= 5

    store.arrivals.add(content)
    put_run(store, b"a", b"b", b"c")
    store.dispatch()
    assert seen == [1, 2]
    store.arrivals.add(eager)
    put_run(store, b"d", b"e", b"f")
    store.dispatch()
    assert seen[2:] == more == [4, 5]


def test_followers_get_a_run_as_it_is(store: MessageStore) -> None:
    seen: list[DispatchRequest] = []
    store.dispatcher.run_followers.append(seen.append)
    put_run(store, b"a", b"bc")
    put_run(store, b"d", b"e", properties=TAGS)
    store.dispatch()
    assert [one.queue_offset for one in seen] == [0, 2]
    assert [list(one.run.properties) for one in seen if one.run] == [[], [TAGS, TAGS]]
    ends = [one.physical_offset + one.size for one in seen]
    assert [0, *ends[:-1]] == [one.physical_offset for one in seen]
    assert ends[-1] == store.commit_log.max_offset


def test_a_run_of_which_a_part_is_there_adds_the_rest(store: MessageStore) -> None:
    put(store)
    put_run(store, b"b", b"c")
    [_, run] = store.dispatcher.pending
    store.dispatcher.pending.clear()
    queue = store.queues.table["T", 0]
    first, second = run.each()
    queue.begin_at(1)
    queue.append(1, first.physical_offset, first.size, 0)
    store.dispatcher.pending.append(run)
    store.dispatcher.dispatched = run.physical_offset
    store.dispatch()
    assert queue.end_offset == 3
    unit = queue.unit(2)
    assert unit is not None
    assert unit.physical_offset == second.physical_offset


def test_a_run_behind_a_gap_stops_its_queue_once(store: MessageStore) -> None:
    put(store)
    store.dispatch()
    queue = store.queues.table["T", 0]
    queue.next_offset += 1
    put_run(store, b"b", b"c")
    store.dispatch()
    assert (queue.end_offset, queue.stopped, store.stats.queues_stopped) == (1, True, 1)
    assert store.dispatch_behind_bytes == 0


def test_runs_that_are_handed_over_late_are_parsed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.queues.dispatch.LAGGING_BYTES", 500)
    for number in range(4):
        put_run(store, *(b"%d%d" % (number, one) for one in range(3)))
    store.dispatch()
    assert store.stats.dispatch_fallbacks == 1
    assert [one.body for one in read_queue(store, "T", 0)] == [
        b"%d%d" % (number, one) for number in range(4) for one in range(3)
    ]
    check_running(store)


def test_what_waits_for_a_slow_disk_keeps_no_more_properties_than_a_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: 20,000 one-way messages with 32 KB of properties took 614 MB until they were on disk."""
    monkeypatch.setattr("aerobee.store.queues.dispatch.LAGGING_BYTES", 10_000)
    store, _ = open_store(tmp_path, Disk(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for _ in range(100):
        store.put(draft("T", 0, b"x", properties=b"a\x01".ljust(1_000, b"b")))
        store.dispatch()
        assert sum(len(one.properties) for one in store.dispatcher.pending) < 12_000
    store.commit_log.sync_all()
    while store.dispatch_behind_bytes:
        store.dispatch()
    assert store.max_offset("T", 0) == 100


def test_what_is_wrong_with_us_is_no_fault_of_a_message(store: MessageStore) -> None:
    def arrival(*_: object) -> None:
        raise AssertionError("an invariant")

    store.arrivals.add(arrival)
    put(store)
    with pytest.raises(AssertionError):
        store.dispatch()
    assert not store.stats.set_aside
