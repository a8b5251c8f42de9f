"""Frames out of any cut of a stream, and what closes a connection."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES, FrameDecoder
from tests.kit.strategies import cut, cuts

Plain = tuple[int, bytes, bytes]


def frame(encoding: int, header: bytes, body: bytes) -> bytes:
    head = struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header))
    return head + header + body


def feed(decoder: FrameDecoder, data: bytes | memoryview) -> list[Plain]:
    return [(encoding, bytes(header), bytes(body)) for encoding, header, body in decoder.feed(data)]


def feed_in_pieces(decoder: FrameDecoder, stream: bytes, size: int) -> list[Plain]:
    return [
        frame
        for at in range(0, len(stream), size)
        for frame in feed(decoder, stream[at : at + size])
    ]


frames = st.lists(
    st.tuples(st.integers(0, 2), st.binary(max_size=60), st.binary(max_size=200)), max_size=6
)


@given(sent=frames, data=st.data())
def test_any_cut_of_the_bytes_gives_the_same_frames(sent: list[Plain], data: st.DataObject) -> None:
    stream = b"".join(frame(*one) for one in sent)
    decoder = FrameDecoder()
    seen: list[Plain] = []
    for piece in cut(stream, data.draw(cuts(len(stream)))):
        seen += feed(decoder, piece)
    assert seen == sent
    assert decoder.pending_bytes == 0


@given(data=st.binary(max_size=200), at=st.data())
def test_arbitrary_bytes_end_in_frames_or_a_frame_error(data: bytes, at: st.DataObject) -> None:
    decoder = FrameDecoder(max_frame_bytes=4096)
    try:
        for piece in cut(data, at.draw(cuts(len(data)))):
            feed(decoder, piece)
    except FrameError:
        return


@given(sent=frames, garbage=st.sampled_from([b"GET / HTTP/1.1\r\n", b"\xff" * 8, bytes(8)]))
def test_frames_before_a_bad_one_are_handed_over(sent: list[Plain], garbage: bytes) -> None:
    stream = b"".join(frame(*one) for one in sent) + garbage
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(stream)
    assert [(e, bytes(h), bytes(b)) for e, h, b in caught.value.frames] == sent


def test_a_whole_frame_is_handed_out_where_it_lies() -> None:
    buffer = bytearray(frame(0, b"{}", b"body"))
    [(_, _, body)] = FrameDecoder().feed(memoryview(buffer))
    buffer[-4:] = b"same"
    assert bytes(body) == b"same"


def test_the_receive_buffer_may_be_used_again_for_the_rest_of_a_frame() -> None:
    whole = frame(1, b"header", b"a body of some length")
    buffer = bytearray(16)
    decoder = FrameDecoder()
    seen: list[Plain] = []
    for at in range(0, len(whole), 16):
        piece = whole[at : at + 16]
        buffer[: len(piece)] = piece
        seen += feed(decoder, memoryview(buffer)[: len(piece)])
    assert seen == [(1, b"header", b"a body of some length")]


def test_views_of_a_finished_frame_survive_while_the_next_one_comes_in() -> None:
    decoder = FrameDecoder()
    first, second = frame(0, b"{}", b"one"), frame(0, b"{}", b"two")
    decoder.feed(first[:5])
    [(_, _, body)] = decoder.feed(first[5:] + second[:9])
    assert bytes(body) == b"one"
    assert feed(decoder, second[9:]) == [(0, b"{}", b"two")]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ((MAX_FRAME_BYTES - 3, 0), "at most"),
        ((0xFFFFFFFF, 0), "at most"),
        ((0, 0), "no room"),
        ((3, 0), "no room"),
        ((100, 3 << 24), "unknown header type 3"),
        ((100, 0xFF000000), "unknown header type 255"),
        ((100, 97), "header of 97 bytes in a frame of 100"),
        ((MAX_FRAME_BYTES - 4, MAX_HEADER_BYTES + 1), "at most"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_frame_that_breaks_a_limit_is_refused_as_soon_as_that_shows(
    head: tuple[int, int], reason: str, size: int
) -> None:
    stream = struct.pack(">II", *head)
    with pytest.raises(FrameError, match=reason):
        feed_in_pieces(FrameDecoder(), stream, size)


def test_the_longest_frame_that_java_takes_is_taken() -> None:
    body = bytes(MAX_FRAME_BYTES - 8 - 2)
    assert feed(FrameDecoder(), frame(0, b"{}", body)) == [(0, b"{}", body)]


def test_a_claimed_length_allocates_nothing() -> None:
    decoder = FrameDecoder()
    head = struct.pack(">II", MAX_FRAME_BYTES - 4, 10)
    tracemalloc.start()
    try:
        decoder.feed(head + b"{")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
    assert decoder.pending_bytes == 9
