"""Handshakes, reports and data with epochs: the bytes of Java, in any cut, and no others."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.errors import FrameIllegal
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha import FRAME_DATA_BYTES_MAX
from aerobee.store.format.ha_epochs import (
    DATA_HEAD,
    EPOCHS_MAX,
    HANDSHAKE_HEAD,
    EpochFrame,
    Greeting,
    Hello,
    MasterReader,
    SlaveReader,
    encode_data,
    encode_greeting,
    encode_hello,
    encode_report,
    epoch_of,
    frame_end,
)

HELLO = bytes.fromhex("00000001 0000 0000 0000000000000007")
REPORT = bytes.fromhex("00000002 0000000000000000")
GREETING = bytes.fromhex("00000001 0000000c 00000000000000e3 00000001 00000001 0000000000000000")
DATA = bytes.fromhex(
    "00000002 000000e3 0000000000000000 00000001 0000000000000000 00000000000000e3"
)
"""What a Java master of 5.4.0 and its slave said to each other; the message is left out."""
RECORD = bytes(range(227))

OFFSETS = st.integers(0, 1 << 60)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Greeting, list[EpochFrame]]:
    starts = sorted(draw(st.lists(OFFSETS, max_size=4)))
    epochs = tuple(Epoch(2 * number, start) for number, start in enumerate(starts))
    frames = [
        EpochFrame(epoch.start + draw(OFFSETS), epoch, draw(OFFSETS), draw(st.binary(max_size=40)))
        for epoch in epochs
    ]
    return Greeting(draw(OFFSETS), epochs), frames


def test_a_slave_speaks_as_java_does() -> None:
    assert encode_hello(Hello(7)) + encode_report(0) == HELLO + REPORT
    reader = SlaveReader()
    assert reader.feed(HELLO + REPORT) == 0
    assert reader.hello == Hello(7)


def test_a_master_speaks_as_java_does() -> None:
    greeting, epoch = Greeting(0xE3, (Epoch(1, 0),)), Epoch(1, 0)
    sent = encode_greeting(greeting) + encode_data(0, epoch, 0xE3, RECORD)
    assert sent == GREETING + DATA + RECORD
    reader = MasterReader()
    assert list(reader.feed(sent)) == [EpochFrame(0, epoch, 0xE3, RECORD)]
    assert reader.greeting == greeting


@given(conversations(), st.data())
def test_any_cut_of_the_bytes_gives_the_same_frames(
    said: tuple[Greeting, list[EpochFrame]], data: st.DataObject
) -> None:
    greeting, frames = said
    sent = encode_greeting(greeting) + b"".join(
        encode_data(frame.physical_offset, frame.epoch, frame.confirmed, frame.data)
        for frame in frames
    )
    reader, at = MasterReader(), 0
    read: list[EpochFrame] = []
    while at < len(sent):
        size = data.draw(st.integers(1, 60))
        read += reader.feed(sent[at : at + size])
        at += size
    assert (reader.greeting, read) == said


@given(st.lists(st.integers(-1, 1 << 60), max_size=5), st.integers(1, 15))
def test_any_cut_of_reports_gives_the_last_one(ends: list[int], size: int) -> None:
    sent = encode_hello(Hello(3, True, True)) + b"".join(map(encode_report, ends))
    reader, last = SlaveReader(), None
    for at in range(0, len(sent), size):
        report = reader.feed(sent[at : at + size])
        last = last if report is None else report
    assert reader.hello == Hello(3, True, True)
    assert last == (ends[-1] if ends else None)


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(FrameIllegal):
        assert sum(len(frame.data) for frame in MasterReader().feed(data)) <= len(data)
    try:
        SlaveReader().feed(data)
    except FrameIllegal:
        return


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (HANDSHAKE_HEAD.pack(2, 0, 0, 0), "state 2"),
        (HANDSHAKE_HEAD.pack(1, 0, -1, 0), "up to -1"),
        (HANDSHAKE_HEAD.pack(1, 13, 0, 0), "13 bytes of epochs"),
        (HANDSHAKE_HEAD.pack(1, -12, 0, 0), "-12 bytes"),
        (HANDSHAKE_HEAD.pack(1, 12 * EPOCHS_MAX + 12, 0, 0), "bytes of epochs"),
        (encode_greeting(Greeting(9, (Epoch(2, 0), Epoch(1, 5)))), "not in order"),
        (encode_greeting(Greeting(9, (Epoch(1, -5),))), "no epoch"),
        (HANDSHAKE_HEAD.pack(1, 12, 9, 3) + GREETING[20:], "last epoch is 3"),
        (GREETING + DATA_HEAD.pack(1, 0, 0, 1, 0, 0), "state 1"),
        (GREETING + DATA_HEAD.pack(2, -1, 0, 1, 0, 0), "-1 bytes"),
        (GREETING + DATA_HEAD.pack(2, FRAME_DATA_BYTES_MAX + 1, 0, 1, 0, 0), "a frame of"),
        (GREETING + DATA_HEAD.pack(2, 5, (1 << 63) - 4, 1, 0, 0), "beyond every log"),
        (GREETING + DATA_HEAD.pack(2, 5, 10, 1, 11, 0), "begins at 11"),
        (GREETING + encode_data(9, Epoch(2, 9), 0) + encode_data(9, Epoch(1, 0), 0), "behind"),
    ],
)
def test_what_no_master_sends_is_refused_with_its_head(sent: bytes, said: str) -> None:
    with pytest.raises(FrameIllegal, match=said):
        list(MasterReader().feed(sent))


@pytest.mark.parametrize(
    "sent", [REPORT + HELLO, HELLO[:8] + bytes(8), HELLO + HELLO], ids=["first", "id", "twice"]
)
def test_what_no_slave_sends_is_refused(sent: bytes) -> None:
    with pytest.raises(FrameIllegal):
        SlaveReader().feed(sent)


def test_an_offset_has_the_epoch_that_its_next_byte_has() -> None:
    epochs = (Epoch(1, 10), Epoch(2, 100), Epoch(3, 100))
    expected = {0: 1, 10: 1, 99: 1, 100: 3, 500: 3}
    assert {at: epoch_of(epochs, at).epoch for at in expected} == expected


def test_a_frame_ends_where_the_next_epoch_begins() -> None:
    epochs = (Epoch(1, 0), Epoch(2, 100), Epoch(3, 100), Epoch(5, 300))
    assert frame_end(epochs, 40, 1_000) == (Epoch(1, 0), 100)
    assert frame_end(epochs, 40, 30) == (Epoch(1, 0), 70)
    assert frame_end(epochs, 100, 1_000) == (Epoch(3, 100), 300)
    assert frame_end(epochs, 300, 1_000) == (Epoch(5, 300), 1_300)
