"""What a message may be, and what is refused before anything is sent."""

import math
from array import array
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aerobee.client.message import Message, check_message, check_name, timer_of
from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
from aerobee.errors import ConfigurationError

LIMIT = 4 << 20
NOON = datetime(2025, 1, 1, 12, 0, 0, 250_999, tzinfo=UTC)


def test_a_body_that_is_text_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match="encode it"):
        Message("T", "hello")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_body_that_may_change_is_copied(kind: type[bytearray] | type[memoryview]) -> None:
    mutable = bytearray(b"x")
    view: Any = kind(mutable)
    message = Message("T", view)
    view[:] = b"y"
    assert message.body == b"x"
    assert type(message.body) is bytes


@pytest.mark.parametrize("body", [None, 1, ["x"], array("b", [1])])
def test_a_body_is_bytes_and_nothing_else(body: Any) -> None:
    with pytest.raises(TypeError, match="a message body is bytes, not"):
        Message("T", body)


def test_a_flag_that_is_no_number_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="flag"):
        Message("T", b"x", flag="a")  # type: ignore[arg-type]  # that is the point
    for flag in (1 << 31, -(1 << 31) - 1):
        with pytest.raises(ConfigurationError, match="flag"):
            check_message(Message("T", b"x", flag=flag), 100)


def test_keys_of_an_iterator_are_kept() -> None:
    """Checks read them before they are written."""
    message = Message("T", b"x", keys=(key for key in ("a", "b")))  # type: ignore[arg-type]  # that is the point
    check_message(message, 100)
    assert message.keys == ("a", "b")


def test_keys_given_as_one_string_are_refused() -> None:
    with pytest.raises(TypeError, match="keys="):
        Message("T", b"x", keys="k1")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("", b"x"), "topic ''"),
        (Message("a b", b"x"), "use letters"),
        (Message("T" * 128, b"x"), "longer than 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "may not send"),
        (Message("T", b""), "is empty"),
        (Message("T", b"x" * 11), "more than max_message_size = 10"),
        (Message("T", b"x", properties={"TAGS": "a"}), "reserved"),
        (Message("T", b"x", properties={"a": " "}), "empty"),
        (Message("T", b"x", properties={"a": "b\x02c"}), "separate"),
        (Message("T", b"x", tag="a\x01b"), "separate"),
        (Message("T", b"x", keys=["a\x02b"]), "a key: .*separate"),
        (Message("T", b"x", keys=["a b"]), "key 'a b' is empty or has a blank"),
        (Message("T", b"x", keys=["a", ""]), "key '' is empty"),
        (Message("T", b"x", tag="a || b"), "cannot be subscribed"),
        (Message("T", b"x", tag=" a"), "cannot be subscribed"),
        (Message("T", b"x", ordering_key="\x01"), "ordering_key: .*separate"),
        (Message("T", b"x", buyer_id="\x01"), "buyer_id: .*separate"),
        (Message("T", b"x", properties={"BUYER_ID": "b"}), "reserved; use buyer_id"),
        (Message("T", b"x", properties={"a": "\ud800"}), "property 'a': .*no text"),
        (Message("T", b"x", properties={"a\x01": "b"}), "the name of property .*separate"),
        (Message("T", b"x", delay_level=19), r"delay_level is 19: 0 is none, then 1 to 18"),
        (Message("T", b"x", delay_level=-1), "delay_level is -1"),
        (Message("T", b"x", delay_level=1, delay=1), "delay_level and delay: give one"),
        (Message("T", b"x", delay=1, deliver_at=NOON), "delay and deliver_at: give one"),
        (Message("T", b"x", delay=-0.1), "delay is -0.1 s"),
        (Message("T", b"x", delay=math.nan), "no duration"),
        (Message("T", b"x", delay=math.inf), "no duration"),
        (Message("T", b"x", deliver_at=NOON.replace(tzinfo=None)), "no time zone"),
        (Message("T", b"x", priority=-1), "priority is -1: 0 is the lowest"),
        (Message("T", b"x", priority=1 << 31), "priority is 2147483648"),
        (Message("T", b"x", priority=0, delay=1), "a priority and a delay: give one"),
        (Message("T", b"x", priority=0, delay_level=1), "a priority and a delay: give one"),
        (Message("T", b"x", priority=0, ordering_key="o"), "a priority and an ordering_key"),
        (Message("T", b"x", properties={"_SYS_MSG_PRIORITY_": "1"}), "reserved"),
    ],
)
def test_what_no_broker_takes_is_refused(message: Message, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_message(message, 10)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("T", b"x", properties={"a": 1}), "property 'a' is a str, not int"),  # type: ignore[dict-item]  # that is the point
        (Message("T", b"x", keys=[1]), "a key is a str, not int"),  # type: ignore[list-item]  # the same
        (Message("T", b"x", delay="1"), "delay is seconds or a timedelta"),  # type: ignore[arg-type]  # the same
        (Message("T", b"x", delay_level="1"), "delay_level is an int"),  # type: ignore[arg-type]  # the same
        (Message("T", b"x", priority="1"), "priority is an int, not str"),  # type: ignore[arg-type]  # the same
        (Message("T", b"x", deliver_at=5), "deliver_at is a datetime"),  # type: ignore[arg-type]  # the same
    ],
)
def test_what_has_the_wrong_type_is_refused_by_name(message: Message, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        check_message(message, LIMIT)


@pytest.mark.parametrize(
    ("message", "timer"),
    [
        (Message("T", b"x"), None),
        (Message("T", b"x", delay_level=3), None),
        (Message("T", b"x", delay=7), ("TIMER_DELAY_SEC", 7)),
        (Message("T", b"x", delay=timedelta(minutes=2)), ("TIMER_DELAY_SEC", 120)),
        (Message("T", b"x", delay=0.25), ("TIMER_DELAY_MS", 250)),
        (Message("T", b"x", delay=0.0001), ("TIMER_DELAY_MS", 1)),
        (Message("T", b"x", deliver_at=NOON), ("TIMER_DELIVER_MS", 1_735_732_800_250)),
    ],
)
def test_times_become_the_timers_of_java(message: Message, timer: tuple[str, int] | None) -> None:
    check_message(message, LIMIT)
    assert timer_of(message) == timer


def test_more_delay_levels_may_be_known() -> None:
    check_message(Message("T", b"x", delay_level=20), LIMIT, delay_levels=20)


def test_all_of_a_message_may_be_used() -> None:
    message = Message("T", b"x", tag="A", keys=["k"], properties={"a": "b"}, ordering_key="o")
    message.buyer_id = "me"
    check_message(message, LIMIT)


def test_group_names_end_at_120() -> None:
    check_name("group", "g" * 120, 120)
    with pytest.raises(ConfigurationError, match="longer than 120"):
        check_name("group", "g" * 121, 120)


def test_queues_sort_as_every_client_sorts_them() -> None:
    queues = [MessageQueue("T", "b", 1), MessageQueue("T", "a", 10), MessageQueue("T", "a", 2)]
    assert [str(queue) for queue in sorted(queues)] == ["T/a/2", "T/a/10", "T/b/1"]


def test_only_ok_is_ok() -> None:
    def result(status: SendStatus) -> SendResult:
        queue = MessageQueue("T", "b", 0)
        return SendResult(
            message_id="m", offset_message_id="o", queue=queue, queue_offset=0, status=status
        )

    assert [result(status).ok for status in SendStatus] == [True, False, False, False]
