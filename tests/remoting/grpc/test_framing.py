from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.grpc.framing import MessageDecoder, framed
from aerobee.remoting.grpc.status import CallRefused, StatusCode


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 300), max_size=10))
def test_messages_come_back_from_any_cut_of_their_bytes(
    messages: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(map(framed, messages))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    decoder = MessageDecoder(40)
    told = [
        message
        for start, end in itertools.pairwise(places)
        for message in decoder.feed(data[start:end])
    ]

    assert told == messages
    assert decoder.pending_bytes == 0


def test_the_beginning_of_a_message_is_pending() -> None:
    decoder = MessageDecoder(100)

    assert decoder.feed(framed(b"whole") + framed(b"not whole")[:8]) == [b"whole"]
    assert decoder.pending_bytes == 8


@pytest.mark.parametrize("before", [b"", framed(b"a"), framed(b"ab")[:3]])
def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come(before: bytes) -> None:
    decoder = MessageDecoder(100)
    if before == framed(b"ab")[:3]:
        decoder.feed(before)
        data = framed(bytes(101))[3:5]
    else:
        data = before + framed(bytes(101))[:5]
    with pytest.raises(CallRefused, match="has 101 bytes, and 100 are allowed") as refused:
        decoder.feed(data)

    assert refused.value.code == StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_a_compressed_message_is_refused(flag: int) -> None:
    with pytest.raises(CallRefused, match="compressed") as refused:
        MessageDecoder(100).feed(bytes([flag]) + framed(b"x")[1:])

    assert refused.value.code == StatusCode.INTERNAL


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_whatever_comes_is_a_message_or_refused(pieces: list[bytes]) -> None:
    decoder = MessageDecoder(20)
    try:
        for piece in pieces:
            assert all(len(message) <= 20 for message in decoder.feed(piece))
    except CallRefused:
        return
    assert decoder.pending_bytes <= 25
