"""Sends that are served together leave the same answers and records as one at a time."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import trio.testing

from aerobee.broker.answers import refusal
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.poller import READ, EpollPoller
from aerobee.remoting.server.receiving import unread_bytes
from aerobee.remoting.server.requests import RUN_MAX
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.store.format.record import Record, read
from aerobee.store.messages.writer import Writer
from tests.broker.desk import Desk, open_desk
from tests.kit.raw_client import batch_body, request_frame, send_fields
from tests.test_depth import Named

if TYPE_CHECKING:
    from pathlib import Path

GENERATED = re.compile(rb'(?<=UNIQ_KEY\x01)[0-9A-F]{32}|(?<=transactionId":")[0-9A-F]{32}')
"""Unique keys that the broker makes."""


def one(
    number: int, body: bytes = b"hello", *, code: int = 310, flag: int = 0, **fields: object
) -> bytes:
    asked = {"i": f"UNIQ_KEY\x01unique{number}\x02TAGS\x01red"} | fields
    return request_frame(code, number, send_fields("t", number % 4, **asked), body, flag=flag)


ODD = {
    "no properties": one(500, i=None),
    "no unique key": one(500, i="KEYS\x01a b"),
    "a unique key with a quote": one(500, i='UNIQ_KEY\x01a"b\\\x02'),
    "a unique key in Greek": one(500, i="UNIQ_KEY\x01αβγ\x02"),
    "closed properties": one(500, i="UNIQ_KEY\x01abc\x02"),
    "properties of the broker": one(500, i="UNIQ_KEY\x01abc\x02POP_CK\x01x"),
    "delayed": one(500, i="UNIQ_KEY\x01abc\x02DELAY\x011"),
    "half": one(500, i="UNIQ_KEY\x01abc\x02TRAN_MSG\x01true\x02PGROUP\x01pg", f=4),
    "a half that is none": one(500, f=4),
    "empty": one(500, b""),
    "too large": one(500, bytes(5 << 20)),
    "large": one(500, bytes(200 << 10)),
    "properties too long": one(500, i=f"UNIQ_KEY\x01abc\x02a\x01{'x' * 32_700}"),
    "half a surrogate": one(500, i="UNIQ_KEY\x01abc\x02a\x01\ud800"),
    "another topic": request_frame(310, 500, send_fields("new", 0, i="UNIQ_KEY\x01abc"), b"x"),
    "a topic with no name": one(500, b=""),
    "a topic of the system": one(500, b="SCHEDULE_TOPIC_XXXX"),
    "a retry topic": one(500, b="%RETRY%g"),
    "no such queue": one(500, e=99),
    "any queue": one(500, e=-1, b="single"),
    "a queue that is no number": one(500, e="x"),
    "a flag that is no number": one(500, h=1 << 40),
    "no topic": one(500, b=None),
    "a batch": one(500, batch_body({b"one": "", b"two": ""}), m=True),
    "one-way": one(500, flag=2),
    "a response": one(500, flag=1),
    "another code": request_frame(31, 500, {"topic": "t", "queueId": "0"}),
    "no code": request_frame(9_999, 500, {}),
    "long names": request_frame(
        10,
        500,
        {
            "producerGroup": "g",
            "topic": "t",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": 1,
            "sysFlag": 0,
            "bornTimestamp": 1,
            "flag": 3,
            "properties": "UNIQ_KEY\x01abc\x02KEYS\x01k",
        },
        b"x",
    ),
    "not JSON": b"\0\0\0\x08\0\0\0\x04{{{{",
    "of another encoding": b"\0\0\0\x08\2\0\0\x04\xff\xff\xff\xff",
}


class Client:
    """A connection to a desk, whose rounds are called."""

    def __init__(self, desk: Desk, nursery: trio.Nursery) -> None:
        self.desk = desk
        reactor = desk.reactor
        self.selector = reactor.add_selector(EpollPoller())
        routes = resolve(desk.broker.routes, reactor.pools)
        worker = Worker(routes, refusal, nursery, reactor.shared)
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 23)
        named: Any = Named(self.ours)
        self.selector.adopt(named, ("127.0.0.1", 50_000), "test", worker)

    async def take(self, data: bytes) -> bytes:
        """The answers to these bytes."""
        answers = b""
        calm = 0
        while calm < 5 and self.selector.connections:
            calm += 1
            with suppress(BlockingIOError):
                data = data[self.theirs.send(data) :] if data else data
            if data or unread_bytes(self.ours) or self.desk.reactor.pools["send"].depth:
                calm = 0
                await trio.sleep(0.001)
            self.selector.round([(self.ours.fileno(), READ)])
            await trio.testing.wait_all_tasks_blocked()
            answers += self.received()
        return answers

    def received(self) -> bytes:
        try:
            return self.theirs.recv(1 << 23)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for connection in list(self.selector.connections.values()):
            connection.close("test")
        self.selector.poller.close()
        self.ours.close()
        self.theirs.close()


def records(desk: Desk) -> list[Record]:
    """All that is in the log, but for what is of this run."""
    found = []
    for at, header in desk.store.commit_log.walk(0):
        view = desk.store.commit_log.view(at, header.size)
        assert view is not None
        record = read(view)
        properties = GENERATED.sub(b"?", record.properties)
        body = bytes(record.body)
        found.append(record._replace(store_timestamp=0, body=body, properties=properties))
    return found


def by_opaque(answers: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Header and body of each answer."""
    found = {}
    for _, header, body in FrameDecoder().feed(answers):
        text = GENERATED.sub(b"?", bytes(header))
        found[json.loads(text)["opaque"]] = (text, bytes(body))
    return found


async def served(
    root: Path, nursery: trio.Nursery, pieces: list[bytes]
) -> tuple[dict[int, tuple[bytes, bytes]], list[Record]]:
    """The answers, and what is in the log then."""
    # A busy machine must not have sends refused.
    patient = RemotingConfig(wait_time_mills_in_send_queue=600_000)
    async with open_desk(root, remoting=patient) as desk:
        desk.topic()
        desk.topic("single", write_queue_nums=1, read_queue_nums=1)
        client = Client(desk, nursery)
        answers = b"".join([await client.take(piece) for piece in pieces])
        log = records(desk)
        units = [queue.end_offset for queue in desk.store.queues.table.values()]
        assert desk.store.dispatch_behind_bytes == 0
        assert units == [queue.next_offset for queue in desk.store.queues.table.values()]
        client.close()
    return by_opaque(answers), log


@pytest.mark.trio
@pytest.mark.parametrize("name", ODD)
async def test_sends_together_are_answered_and_stored_as_one_by_one(
    tmp_path: Path, nursery: trio.Nursery, name: str
) -> None:
    """A run ends with anything odd, which is answered by itself, in its place."""
    pieces = [*map(one, range(5)), ODD[name], *map(one, range(5, RUN_MAX + 9))]
    alone = await served(tmp_path / "alone", nursery, pieces)
    together = await served(tmp_path / "together", nursery, [b"".join(pieces)])
    for opaque, answer in alone[0].items():
        assert together[0].get(opaque) == answer, opaque
    assert len(together[0]) == len(alone[0])
    assert together[1] == alone[1]
    answers, log = alone
    if not name.startswith(("not JSON", "of another")):
        assert {*range(RUN_MAX + 9)} <= {*answers}
        assert len(log) >= RUN_MAX + 9


@pytest.mark.trio
async def test_most_sends_of_a_read_are_put_together(tmp_path: Path, nursery: trio.Nursery) -> None:
    pieces = [one(100 + queue) for queue in range(4)]
    with (
        patch.object(Writer, "put_run", autospec=True, side_effect=Writer.put_run) as run,
        patch.object(Writer, "put", autospec=True, side_effect=Writer.put) as put,
    ):
        answers, _ = await served(tmp_path, nursery, [*pieces, b"".join(map(one, range(RUN_MAX)))])
    assert len(answers) == RUN_MAX + 4
    assert run.call_count == 1
    assert put.call_count == 4


@pytest.mark.trio
async def test_when_a_run_fails_each_send_is_served_by_itself(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    frames = [*map(one, range(RUN_MAX))]
    alone = await served(tmp_path / "alone", nursery, frames)
    with patch.object(Writer, "put_run", autospec=True, side_effect=RuntimeError("test")) as run:
        together = await served(tmp_path / "together", nursery, [b"".join(frames)])
    assert run.called
    assert together == alone
