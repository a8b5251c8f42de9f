"""The way of a request through the broker, as a profile of one real round sees it.

    python tests/kit/message_way.py

Runs `aerobee broker run` of the current directory in this process, with the profile hook of the
interpreter, while a thread sends a request over a socket. It uses no name of the product but the
command line, so that one version of this file measures any checkout. It prints one JSON object:
for each kind of request the frames of the deepest stack, the frames at the write into the log (for
sends), the calls, and the files whose functions were entered.

What counts begins where the bytes are received and ends where the answer is sent, in the task that
receives. Frames are those of the product below the event loop.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

KINDS = ("lone send", "gathered sends", "batch send", "pull")
SENDERS = 4
"""Connections whose sends come together."""
SETTLING = 8
WITHIN_S = 60.0
READS = ("recv", "recv_into")
WRITES = ("send", "sendmsg")
APPENDS = ("MappedFile.append", "MappedFile.append_each")
"""The only names that are known: where records are copied into the mapping."""


class Way:
    """The profile hook: what is entered between the first bytes and the answer."""

    def __init__(self, top: str) -> None:
        self.ours = tuple(
            f"{top}/{part}" for part in ("aerobee/", "broker/", "remoting/", "store/")
        )
        self.begin = threading.Event()
        """Set when all requests of a measurement are in their sockets."""
        self.begin.set()
        self.measuring = False
        self.clear()

    def clear(self) -> None:
        self.root: FrameType | None = None
        self.deepest = self.at_write = self.calls = 0
        self.files: set[str] = set()
        self.kept: tuple[int, int, int, set[str]] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.begin.is_set():
            self.begin.wait(WITHIN_S)
        if not self.measuring:
            return
        if event == "c_call":
            name = getattr(argument, "__name__", "")
            if not isinstance(getattr(argument, "__self__", None), socket.socket):
                return
            if (
                name in READS
                and self.root is None
                and frame.f_code.co_filename.startswith(self.ours)
            ):
                self.enter(frame)
            elif name in WRITES and self.root is not None and self.task(frame)[0] is self.root:
                self.kept = (self.deepest, self.at_write, self.calls, set(self.files))
        elif event == "call" and self.root is not None:
            root, frames = self.task(frame)
            if root is self.root and frame.f_code.co_filename.startswith(self.ours):
                self.calls += 1
                self.deepest = max(self.deepest, len(frames))
                self.files.add(frame.f_code.co_filename)
                if frame.f_code.co_qualname in APPENDS:
                    self.at_write = len(frames)

    def enter(self, frame: FrameType) -> None:
        """The first bytes are received: what stands on the stack has been entered."""
        self.root, frames = self.task(frame)
        self.deepest = len(frames)
        self.files.update(one.f_code.co_filename for one in frames)

    def task(self, frame: FrameType | None) -> tuple[FrameType | None, list[FrameType]]:
        """The outermost frame of ours in this task, and all of ours in it."""
        frames = []
        while frame is not None and not frame.f_code.co_filename.endswith("trio/_core/_run.py"):
            if frame.f_code.co_filename.startswith(self.ours):
                frames.append(frame)
            frame = frame.f_back
        return (frames[-1] if frames else None), frames

    def figures(self) -> dict[str, Any]:
        assert self.kept is not None, "nothing was answered"
        deepest, at_write, calls, files = self.kept
        places = sorted(str(Path(*Path(name).parts[-3:])) for name in files)
        return {"deepest": deepest, "at_write": at_write, "calls": calls, "files": places}


class Peer:
    """A connection that speaks the protocol's JSON headers."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)

    def ask(self, frame: bytes) -> dict[str, Any]:
        self.sock.sendall(frame)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        length, head = struct.unpack(">II", self.take(8))
        body = self.take(length - 4)
        header: dict[str, Any] = json.loads(body[: head & 0xFFFFFF])
        return header

    def take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            assert piece, "closed"
            data += piece
        return data


def request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    head = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 479,
            "serializeTypeCurrentRPC": "JSON", "extFields": fields}  # fmt: skip
    header = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def send(body: bytes, *, batch: bool = False) -> bytes:
    fields = {"a": "p", "b": "way", "c": "TBW102", "d": "1", "e": "0", "f": "0",
              "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false",
              "m": str(batch).lower()}  # fmt: skip
    return request(320 if batch else 310, fields, body)


def batch(*bodies: bytes) -> bytes:
    """The body of a batch: size, magic, CRC, flag, body, properties of each message."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0"
        for body in bodies
    )


def pull() -> bytes:
    fields = {"consumerGroup": "way", "topic": "way", "queueId": "0", "queueOffset": "0",
              "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
              "suspendTimeoutMillis": "0", "subscription": "*",
              "expressionType": "TAG"}  # fmt: skip
    return request(11, fields)


def measure(way: Way, port: int) -> dict[str, dict[str, Any]]:
    peers = [Peer(port) for _ in range(SENDERS + 1)]
    deadline = time.monotonic() + WITHIN_S
    while (answer := peers[0].ask(send(b"first")))["code"] != 0:
        assert time.monotonic() < deadline, answer
    for peer in peers:
        assert peer.ask(send(b"warm"))["code"] == 0
    bodies = {
        "lone send": send(b"hello"),
        "batch send": send(batch(b"one", b"two"), batch=True),
        "pull": pull(),
    }
    kept = {}
    for kind in KINDS:
        for _ in range(3):
            # The third measurement has every cache warm.
            settle(way, peers[0])
            if kind == "gathered sends":
                gather(way, peers)
            else:
                way.measuring = True
                assert peers[0].ask(bodies[kind])["code"] == 0
            way.measuring = False
            kept[kind] = way.figures()
    return kept


def settle(way: Way, peer: Peer) -> None:
    """What the last request left to background tasks is done in the rounds of a few others."""
    for _ in range(SETTLING):
        peer.ask(pull())
    way.clear()


def gather(way: Way, peers: list[Peer]) -> None:
    """The first four bytes of a frame end the wait of the loop; the sends come while it stands."""
    first = send(b"hello")
    way.begin.clear()
    way.measuring = True
    peers[0].sock.sendall(first[:4])
    for peer in peers[1:]:
        peer.sock.sendall(send(b"hello"))
    way.begin.set()
    for peer in peers[1:]:
        assert peer.answer()["code"] == 0
    way.measuring = False
    peers[0].sock.sendall(first[4:])
    assert peers[0].answer()["code"] == 0


def free_port() -> int:
    """The first of three neighbours that could be bound a moment ago; the others lie below."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
        try:
            for other in (port - 1, port - 2):
                with socket.socket() as two:
                    two.bind(("127.0.0.1", other))
        except OSError:
            continue
        return port


def main() -> None:
    """Run a broker, measure, print, end."""
    top = os.getcwd()
    sys.path.insert(0, top)
    way = Way(top)
    port, namesrv = free_port(), free_port()
    settings = {"listenPort": port, "vipListenPort": port - 2, "namesrvListenPort": namesrv,
                "metricsPromExporterPort": 0, "consolePort": 0, "waitTimeMillsInSendQueue": 60_000,
                "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000,
                "maxHashSlotNum": 1_000, "maxIndexNum": 4_000,
                "loopStallMillis": 60_000}  # fmt: skip

    def run() -> None:
        unblocked = threading.Event()
        try:
            deadline = time.monotonic() + WITHIN_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline, "does not listen"
                    unblocked.wait(0.05)
            print(json.dumps(measure(way, port)), flush=True)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            raise
        finally:
            way.measuring = False
            way.begin.set()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=run, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="aerobee-way-") as data:
        from aerobee.cli.main import main as command  # of the checkout in the current directory

        sets = [f"--set={key}={value}" for key, value in settings.items()]
        sys.argv = ["aerobee", "broker", "run", "--data", data, *sets]
        sys.setprofile(way)
        command()


if __name__ == "__main__":
    main()
