"""How far a consumer is: what is finished, what is not, and what a seek forgets."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.compression import UNPACKED_MAX
from aerobee.client.message import ReceivedMessage
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.consumers import PULL_LIMITS, Limits
from aerobee.client.steps.held_queue import Cache, HeldQueue
from tests.aerobee.client.received import received

QUEUE = MessageQueue("T", "b", 0)


def message(queue_offset: int, body: bytes = b"x") -> ReceivedMessage:
    return received(QUEUE, queue_offset, body)


def sized(queue_offset: int, size: int) -> ReceivedMessage:
    return message(queue_offset, bytes(size))


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
    most = PULL_LIMITS.max_messages
    queue = held(*range(most), then=most)
    assert queue.full
    queue.cache.room.clear()
    queue.take(1)
    assert not queue.full
    assert queue.cache.room.is_set


def test_one_message_alone_may_be_as_large_as_messages_are() -> None:
    queue = HeldQueue(QUEUE, 0, Cache(), limits=Limits(max_bytes=10))
    assert queue.room_bytes == UNPACKED_MAX
    queue.add(sized(0, 1000))
    assert queue.full
    assert queue.room_bytes < 0


def test_queues_share_one_limit_of_bytes_and_none_keeps_the_others_out() -> None:
    limit, queues = 1000, 4
    cache = Cache()
    held = [HeldQueue(QUEUE, 0, cache, limits=Limits(max_bytes=limit)) for _ in range(queues)]
    greedy = held[0]
    for n in range(limit):
        if greedy.room_bytes < 10:
            break
        greedy.add(sized(n, 10))
    assert cache.used_bytes == limit // 2
    for one in held[1:]:
        assert one.room_bytes >= limit // 2 // queues
        one.add(sized(0, limit // 2 // queues))
    assert cache.used_bytes <= limit
    assert all(one.full for one in held)


def test_a_queue_without_room_tries_again_once_there_is_more() -> None:
    cache = Cache()
    other, queue = (HeldQueue(QUEUE, 0, cache, limits=Limits(max_bytes=1000)) for _ in "12")
    for n in range(4):
        other.add(sized(n, 10))
    queue.count_pull(0, whole=False)
    assert (queue.full, queue.pull_max) == (True, 1)
    other.take(1)
    assert not queue.full
    queue.count_pull(1, whole=True)
    assert (queue.full, queue.pull_max) == (False, 2)


def test_an_interrupted_delivery_puts_back_what_nobody_got() -> None:
    queue = held(0, 1, 2, then=3)
    taken: list[ReceivedMessage] = []
    queue.take_into(taken, 2)
    before = queue.cache.used_bytes
    queue.put_back(taken)
    queue.put_back(taken)
    assert [one.queue_offset for one in queue.waiting] == [0, 1, 2]
    assert not queue.unfinished
    assert queue.cache.used_bytes == queue.cached_bytes == before + 2


def test_what_is_given_back_is_pulled_again() -> None:
    queue = held(0, 1, 2, then=3)
    queue.take(1)
    interrupted = queue.interrupt
    queue.give_back()
    assert interrupted.is_set
    assert (queue.next_offset, queue.position, queue.commit_point) == (1, 1, 0)
    assert queue.cache.used_bytes == 0


def test_a_dropped_queue_gives_its_room_back() -> None:
    queue = held(0, 1, then=2)
    assert queue.cache.used_bytes == 2
    queue.drop()
    assert queue.cache.used_bytes == 0
    assert queue.interrupt.is_set
