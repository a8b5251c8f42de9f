"""How far a consumer is: what is finished, what is not, and what a seek forgets."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.message import MessageQueue, ReceivedMessage
from aerobee.client.steps import held_queue
from aerobee.client.steps.held_queue import Cache, HeldQueue

QUEUE = MessageQueue("T", "b", 0)
NOW = datetime(2025, 1, 1, tzinfo=UTC)


def message(queue_offset: int, body: bytes = b"x") -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=body,
        tag=None,
        keys=(),
        properties={},
        flag=0,
        ordering_key=None,
        wait_store_ok=True,
        message_id=str(queue_offset),
        offset_message_id="",
        queue=QUEUE,
        queue_offset=queue_offset,
        commit_log_offset=0,
        born_at=NOW,
        stored_at=NOW,
        born_host="",
        store_host="",
        reconsume_times=0,
        original_topic="T",
        transaction_id=None,
    )


def held(*offsets: int, then: int) -> HeldQueue:
    made = HeldQueue(QUEUE, offsets[0] if offsets else then, Cache())
    for offset in offsets:
        made.add(message(offset))
    made.next_offset = then
    return made


def test_position_skips_what_a_filter_took_out() -> None:
    queue = held(3, 7, then=20)
    assert queue.position == 3
    queue.take(1)
    assert queue.position == 7
    queue.take(5)
    assert queue.position == 20


def test_nothing_unfinished_is_committed() -> None:
    queue = held(0, 1, 2, then=3)
    queue.take(3)
    assert queue.commit_point == 0
    queue.finish(1)
    assert queue.commit_point == 0
    queue.finish(0)
    assert queue.commit_point == 2
    queue.finish(2)
    assert queue.commit_point == 3


@given(
    offsets=st.sets(st.integers(0, 50), min_size=1).map(sorted),
    steps=st.lists(st.integers(0, 60), max_size=80),
)
def test_the_commit_point_never_passes_an_unfinished_message(
    offsets: list[int], steps: list[int]
) -> None:
    queue = held(*offsets, then=offsets[-1] + 1)
    given_out: set[int] = set()
    before = queue.commit_point
    for step in steps:
        if step > 50:
            given_out |= {taken.queue_offset for taken in queue.take(step - 50)}
        elif step in given_out:
            queue.finish(step)
            given_out.discard(step)
        assert before <= queue.commit_point <= queue.position <= queue.next_offset
        assert all(queue.commit_point <= offset for offset in given_out)
        before = queue.commit_point


def test_a_seek_forgets_what_was_pulled_and_interrupts_the_pull() -> None:
    queue = held(0, 1, 2, then=3)
    queue.take(1)
    interrupt = queue.interrupt
    queue.move_to(9)
    assert (queue.position, queue.commit_point) == (9, 9)
    assert interrupt.is_set
    assert not queue.interrupt.is_set
    assert queue.cache.used_bytes == 0


def test_a_full_queue_says_when_there_is_room_again() -> None:
    most = held_queue.CACHED_MESSAGES_MAX
    queue = held(*range(most), then=most)
    assert queue.full
    queue.cache.room.clear()
    queue.take(1)
    assert not queue.full
    assert queue.cache.room.is_set


def test_all_queues_share_one_limit_of_bytes_but_none_starves() -> None:
    cache = Cache(used_bytes=held_queue.CACHED_BYTES_MAX)
    queue = HeldQueue(QUEUE, 0, cache)
    assert not queue.full
    queue.add(message(0))
    assert queue.full


def test_a_dropped_queue_gives_its_room_back() -> None:
    queue = held(0, 1, then=2)
    assert queue.cache.used_bytes == 2
    queue.drop()
    assert queue.cache.used_bytes == 0
    assert queue.interrupt.is_set
