"""Frames that real Java clients and brokers sent, read by our codec and by a plain reader.

The two readers share nothing, so a misreading would have to be made twice. The recordings are those
of `record_java`: clients of 5.4.0 and 4.9.7, both header types, on the broker of their version.
"""

import random
from pathlib import Path

import pytest

from aerobee.remoting.wire.command import Command, decode
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.header import Header
from aerobee.remoting.wire.headers.client import Heartbeat, LockBatchMq, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pull import LitePullMessage, PullMessage
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessageV2
from tests.kit.plain_frames import read_plainly

RECORDINGS = sorted((Path(__file__).parent / "frames").glob("*.frames"))

TYPED: tuple[type[Header], ...] = (
    GetMaxOffset,
    GetRouteInfo,
    Heartbeat,
    LitePullMessage,
    LockBatchMq,
    PullMessage,
    QueryConsumerOffset,
    SearchOffset,
    SendBatchMessage,
    SendMessageV2,
    UnregisterClient,
    UpdateConsumerOffset,
)

SEEN_IN_ALL = {34, 35, 38, 14, 11, 310, 320, 105}
"""Heartbeat, leaving, members, offset, pull, sends, route: a recording without them is none."""


def recorded(path: Path) -> list[tuple[str, bytes]]:
    """Direction and frame of each entry."""
    data, at, entries = path.read_bytes(), 0, []
    while at < len(data):
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        entries.append((chr(data[at]), data[at + 1 : end]))
        at = end
    return entries


def ours(frame: bytes) -> Command:
    [(encoding, header, body)] = FrameDecoder().feed(frame)
    return decode(encoding, header, body)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_recording_has_what_clients_do_every_day(path: Path) -> None:
    codes = {read_plainly(frame).code for direction, frame in recorded(path) if direction == ">"}
    assert codes >= SEEN_IN_ALL


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_our_codec_reads_every_recorded_frame_as_it_was_meant(path: Path) -> None:
    for _, frame in recorded(path):
        plain, command = read_plainly(frame), ours(frame)
        got = (command.code, command.opaque, command.flag, command.version, command.remark or None)
        assert got == plain[:5]
        assert command.ext_fields() == plain.ext
        assert bytes(command.body) == plain.body


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_request_fits_its_typed_header(path: Path) -> None:
    typed = {int(header.code): header for header in TYPED}
    requests = [ours(frame) for direction, frame in recorded(path) if direction == ">"]
    read = [command.header(typed[command.code]) for command in requests if command.code in typed]
    assert {type(header) for header in read} >= {SendMessageV2, SendBatchMessage, GetRouteInfo}
    assert {header.topic for header in read if isinstance(header, SendMessageV2)} == {"T"}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_stream_cut_anywhere_gives_the_same_frames(path: Path) -> None:
    frames = [frame for _, frame in recorded(path)]
    stream, rng, decoder = b"".join(frames), random.Random(path.stem), FrameDecoder()
    lengths, at = [], 0
    while at < len(stream):
        cut = at + rng.randrange(1, 700)
        lengths += [8 + len(head) + len(body) for _, head, body in decoder.feed(stream[at:cut])]
        at = cut
    assert lengths == [len(frame) for frame in frames]
