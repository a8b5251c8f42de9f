"""What a message may be, and what is refused before anything is sent."""

import pytest

from aerobee.client.message import (
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    check_message,
    check_name,
)
from aerobee.errors import ConfigurationError

LIMIT = 4 << 20


def test_a_body_that_is_text_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match="encode it"):
        Message("T", "hello")  # type: ignore[arg-type]  # that is the point


def test_a_body_is_bytes_and_nothing_like_it() -> None:
    with pytest.raises(TypeError, match="bytearray"):
        Message("T", bytearray(b"x"))  # type: ignore[arg-type]  # that is the point


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
        (Message("T", b"x", keys=["a\x02b"]), "separate"),
    ],
)
def test_what_no_broker_takes_is_refused(message: Message, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_message(message, 10)


def test_all_of_a_message_may_be_used() -> None:
    message = Message("T", b"x", tag="A", keys=["k"], properties={"a": "b"}, ordering_key="o")
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
