"""Messages with one long field, and those that are long in any other way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.grpc.bulk import FIELDS_MAX, SHORT_BYTES_MAX, is_short
from aerobee.remoting.grpc.fields import BULK
from aerobee.remoting.grpc.messages import Message, SendMessageRequest, TelemetryCommand

LONG = SHORT_BYTES_MAX + 1


def sent(*messages: Message) -> bytes:
    data: bytes = SendMessageRequest(messages=messages).SerializeToString()
    return data


def test_a_body_may_be_long_and_nothing_else() -> None:
    bulk = BULK["SendMessage"]
    assert is_short(sent(Message(body=bytes(10 * LONG), user_properties={"a": "b"})), bulk)
    assert is_short(sent(*[Message(body=bytes(LONG))] * 3), bulk)
    half = {"a": "b" * (LONG // 2)}
    assert is_short(sent(Message(body=bytes(LONG), user_properties=half)), bulk)
    assert not is_short(sent(*[Message(body=b"b", user_properties=half)] * 2), bulk)


def test_stacks_may_be_long_and_settings_may_not() -> None:
    bulk = BULK["Telemetry"]
    stacks = TelemetryCommand(thread_stack_trace={"nonce": "1", "thread_stack_trace": "s" * LONG})
    assert is_short(stacks.SerializeToString(), bulk)
    settings = TelemetryCommand(settings={"user_agent": {"version": "s" * LONG}})
    assert not is_short(settings.SerializeToString(), bulk)


def test_very_many_fields_are_too_many() -> None:
    bulk = BULK["SendMessage"]
    body = Message(body=bytes(LONG))
    assert is_short(sent(body, *[Message()] * (FIELDS_MAX - 2)), bulk)
    assert not is_short(sent(body, *[Message()] * FIELDS_MAX), bulk)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\x7f" + bytes(LONG),
        b"\xff" * LONG,
        b"\x0b" + bytes(LONG),
        b"\x09" * LONG,
    ],
)
def test_what_cannot_be_read_is_not_short(data: bytes) -> None:
    assert not is_short(data, BULK["SendMessage"])


@given(st.binary(max_size=200))
def test_any_bytes_are_looked_at(data: bytes) -> None:
    assert is_short(data, (1, 4))
    assert is_short(data + bytes(LONG), (1, 4)) in (True, False)
