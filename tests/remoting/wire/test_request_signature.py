"""The signature of requests: RocketMQ's own values, the order of names, what is left out."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.wire.request_signature import SIGNATURE, is_signed, signature

SECRET = b"12345678"
FIELDS = {"topic": "TopicTest", "queueId": "0", "AccessKey": "RocketMQ", "consumerGroup": "CG1"}


def test_the_values_are_those_of_rocketmq() -> None:
    """Made by AclClientRPCHook 4.9.7 for these fields."""
    assert signature(SECRET, FIELDS, b"") == "HtUjItjAgU9jz8EBcVcdoR2NAXw="
    assert signature(SECRET, FIELDS, b'{"a":1}') == "rUtkoAKf3SjtXkIeObnJFgvj3ss="


def test_names_are_in_the_order_of_java() -> None:
    """UTF-16 puts a character beyond the first plane in front of U+E000 to U+FFFF."""
    swapped = signature(SECRET, {"\U0001f600": "a", "\ufb01": "b"}, b"")
    assert swapped == signature(SECRET, {"1": "a", "2": "b"}, b"")


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=6), st.binary())
def test_what_was_signed_is_accepted_and_nothing_else(fields: dict[str, str], body: bytes) -> None:
    fields.pop("_UNIQUE_KEY_QUERY", None)
    signed = {**fields, SIGNATURE: signature(SECRET, fields, body)}
    assert is_signed(SECRET, signed, memoryview(body))
    assert not is_signed(b"another", signed, body)
    assert not is_signed(SECRET, signed, body + b"x")
    assert not is_signed(SECRET, {**signed, "zz": "x"}, body)
    assert not is_signed(SECRET, fields | {SIGNATURE: ""}, body)


def test_the_flag_that_old_clients_add_after_signing_does_not_count() -> None:
    signed = {**FIELDS, SIGNATURE: signature(SECRET, FIELDS, b""), "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(SECRET, signed, b"")
    new = {**FIELDS, "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(SECRET, {**new, SIGNATURE: signature(SECRET, new, b"")}, b"")
