"""The signature of requests: RocketMQ's own values, the order of names, what is left out."""

from collections.abc import Generator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.wire.request_signature import (
    ACCESS_KEY,
    ONLY_FOR,
    SIGNATURE,
    content_of,
    is_signed,
    is_signed_in_steps,
    signature,
    with_signature,
)

SECRET = b"12345678"
PULL, REGISTER = 11, 103
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
    assert is_signed(SECRET, signed, memoryview(body), PULL)
    assert not is_signed(b"another", signed, body, PULL)
    assert not is_signed(SECRET, signed, body + b"x", PULL)
    assert not is_signed(SECRET, {**signed, "zz": "x"}, body, PULL)
    assert not is_signed(SECRET, fields | {SIGNATURE: ""}, body, PULL)


def test_the_flag_that_old_clients_add_after_signing_does_not_count() -> None:
    signed = {**FIELDS, SIGNATURE: signature(SECRET, FIELDS, b""), "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(SECRET, signed, b"", PULL)
    new = {**FIELDS, "_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(SECRET, {**new, SIGNATURE: signature(SECRET, new, b"")}, b"", PULL)


@given(
    st.dictionaries(st.sampled_from("abc!A"), st.sampled_from(["", "!", "x", "secret"])),
    st.sampled_from([b"", b"topic", b"!only for request code 11;"]),
    st.lists(st.integers(0, 80), max_size=6),
    st.integers(0, 80),
)
def test_what_is_signed_for_one_code_is_good_for_no_other_however_it_is_cut(
    fields: dict[str, str], body: bytes, cuts: list[int], rest: int
) -> None:
    """The text is cut into other fields, with the name of the account where it has to be."""
    account = "!only"
    signed = with_signature(account, SECRET, fields, body, code=REGISTER)
    assert is_signed(SECRET, signed, body, REGISTER)
    assert not is_signed(SECRET, signed, body, PULL)
    text = (content_of(signed) + body).decode()
    for at in range(len(text)):
        if not text.startswith(account, at):
            continue
        front, behind = text[:at], text[at + len(account) :]
        other = {"B": behind[: max(0, len(behind) - rest)]} | {ACCESS_KEY: account}
        places = sorted({0, len(front), *(cut % (len(front) + 1) for cut in cuts)})
        pieces = [front[a:b] for a, b in pairwise(places)]
        other |= {f"!{number}": piece for number, piece in enumerate(pieces)}
        end = behind[len(other["B"]) :].encode()
        assert content_of(other) + end == text.encode()
        other[SIGNATURE] = signed[SIGNATURE]
        assert not is_signed(SECRET, other, end, PULL)
        steps = is_signed_in_steps(SECRET, other, end, PULL)
        assert not ended(steps)
        assert ended(is_signed_in_steps(SECRET, other, end, REGISTER))


def ended(steps: Generator[None, None, bool]) -> bool:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return bool(end.value)


def test_a_text_that_names_no_code_is_good_for_all_as_in_rocketmq() -> None:
    for key in ("RocketMQ", ONLY_FOR[:5], "!only for request code x"[:6]):
        signed = with_signature(key, SECRET, {"topic": "t"}, b"")
        assert is_signed(SECRET, signed, b"", PULL)
        assert is_signed(SECRET, signed, b"", REGISTER)
