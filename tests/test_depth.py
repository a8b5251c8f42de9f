"""The way of one message is a straight line: few frames from the round to the write."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.answers import refusal
from aerobee.remoting.server.poller import READ, EpollPoller
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.selector import Selector
from aerobee.remoting.server.worker import Worker
from aerobee.store.files.mapped_file import MappedFile
from tests.broker.desk import Desk, open_desk
from tests.kit.raw_client import batch_body, request_frame, send_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

ROOT = Path(__file__).parent.parent
OURS = tuple(f"{ROOT / 'aerobee' / package}/" for package in ("remoting", "store", "broker"))
DEEPEST = 13


class Depth:
    """How many frames of our code stood from `first` to one of `last` whenever that was entered."""

    def __init__(self, first: Callable[..., Any], *last: Callable[..., Any]) -> None:
        self.first = code_of(first)
        self.last = {code_of(each) for each in last}
        self.ways: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in self.last:
            self.ways.append([*reversed(list(self.way(frame)))])

    def way(self, frame: FrameType | None) -> Iterator[str]:
        """Names of our frames, upwards to `first`."""
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(OURS):
                yield code.co_qualname
            if code is self.first:
                return
            frame = frame.f_back
        raise AssertionError("not called from there")

    def __enter__(self) -> Depth:
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)


def code_of(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


def send(desk: Desk, frame: bytes, nursery: Any) -> list[list[str]]:
    """Send one frame through a real socket; the ways of what was written for it."""
    ours, theirs = socket.socketpair()
    reactor = desk.reactor
    selector = reactor.add_selector(EpollPoller())
    routes = resolve(desk.broker.routes, reactor.pools)
    worker = Worker(routes, refusal, nursery, reactor.shared)
    with ours, theirs:
        ours.setblocking(False)
        selector.adopt(Named(ours), ("127.0.0.1", 50_000), "test", worker)  # type: ignore[arg-type]  # as much of a socket as is used
        theirs.sendall(frame)
        with Depth(Selector.round, MappedFile.append, MappedFile.append_each) as depth:
            selector.round([(ours.fileno(), READ)])
        (connection,) = selector.connections.values()
        connection.close("test")
        selector.poller.close()
    return depth.ways


class Named:
    """A socket of a pair that has an address to say."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 10911)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


BATCH = batch_body({b"one": "", b"two": ""})


@pytest.mark.trio
@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (310, {}, b"hello"),
        (310, {"i": "POP_CK\x01x\x02"}, b"hello"),
        (310, {"m": True}, BATCH),
        (320, {"m": True}, BATCH),
    ],
    ids=["one", "cleaned", "batch by flag", "batch"],
)
async def test_a_message_is_at_most_thirteen_frames_deep_when_it_is_written(
    tmp_path: Path, nursery: Any, code: int, fields: dict[str, object], body: bytes
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        # The first message makes the segment; the way of every other one is what counts.
        assert (await desk.send()).code == 0
        ways = send(desk, request_frame(code, 1, send_fields("t", 0, **fields), body), nursery)
        assert len(ways) == 1
        assert len(ways[0]) <= DEEPEST, ways[0]
        assert ways[0][0] == "Selector.round"
        assert ways[0][-1] in ("MappedFile.append", "MappedFile.append_each")
