"""Sends that are served together leave the same answers and records as one at a time."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import trio.testing

from aerobee.broker.access.access_stats import AccessStats
from aerobee.broker.access.gate import Gate as AccessGate
from aerobee.broker.access.plain_acl import AclTable, Perm, PlainAccount, PlainAcl
from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.broker.answers import refusal
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.poller import READ, EpollPoller
from aerobee.remoting.server.receiving import unread_bytes
from aerobee.remoting.server.requests import RUN_MAX
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.request_signature import with_signature
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import Record, read
from aerobee.store.messages.writer import Writer
from tests.broker.desk import Desk, Gate, open_desk
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.raw_client import batch_body, request_frame, send_fields
from tests.test_depth import Named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

SYNC = FlushDiskType.SYNC_FLUSH
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
    "not to wait for the disk": one(500, i="UNIQ_KEY\x01abc\x02WAIT\x01false"),
    "to wait for the disk": one(500, i="UNIQ_KEY\x01abc\x02WAIT\x01TRUE"),
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

WAITING = ("not to wait for the disk", "to wait for the disk", "delayed", "another topic", "large")
"""Those of them that are other than others under SYNC_FLUSH, and two that are not."""


class Client:
    """A connection to a desk, whose rounds are called."""

    def __init__(self, desk: Desk, nursery: trio.Nursery, gate: AccessGate | None = None) -> None:
        self.desk = desk
        reactor = desk.reactor
        self.selector = reactor.add_selector(EpollPoller())
        routes = resolve(desk.broker.routes, reactor.pools)
        checks = () if gate is None else (gate.check, gate.lets_pass)
        worker = Worker(routes, refusal, nursery, reactor.shared, *checks)
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
                # Real time: the loop's own may be a test's.
                await trio.to_thread.run_sync(threading.Event().wait, 0.001)
            self.round()
            await trio.testing.wait_all_tasks_blocked()
            answers += self.received()
        return answers

    def round(self) -> None:
        """Serve what is there."""
        self.selector.round([(self.ours.fileno(), READ)])

    async def now(self, data: bytes) -> bytes:
        """The answers to these bytes that come at once."""
        self.theirs.send(data)
        self.round()
        await trio.testing.wait_all_tasks_blocked()
        return self.received()

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
    root: Path,
    nursery: trio.Nursery,
    pieces: list[bytes],
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
) -> tuple[dict[int, tuple[bytes, bytes]], list[Record]]:
    """The answers, and what is in the log then."""
    # A busy machine must not have sends refused.
    patient = RemotingConfig(wait_time_mills_in_send_queue=600_000)
    async with open_desk(root, remoting=patient, flush_disk_type=flush) as desk:
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
@pytest.mark.parametrize(
    ("name", "flush"),
    [*((name, FlushDiskType.ASYNC_FLUSH) for name in ODD), *((name, SYNC) for name in WAITING)],
)
async def test_sends_together_are_answered_and_stored_as_one_by_one(
    tmp_path: Path, nursery: trio.Nursery, name: str, flush: FlushDiskType
) -> None:
    """A run ends with anything odd, which is answered by itself, in its place."""
    pieces = [*map(one, range(5)), ODD[name], *map(one, range(5, RUN_MAX + 9))]
    alone = await served(tmp_path / "alone", nursery, pieces)
    together = await served(tmp_path / "together", nursery, [b"".join(pieces)], flush)
    for opaque, answer in alone[0].items():
        assert together[0].get(opaque) == answer, opaque
    assert len(together[0]) == len(alone[0])
    assert together[1] == alone[1]
    answers, log = alone
    if not name.startswith(("not JSON", "of another")):
        assert {*range(RUN_MAX + 9)} <= {*answers}
        assert len(log) >= RUN_MAX + 9


@pytest.mark.trio
@pytest.mark.parametrize("flush", FlushDiskType)
async def test_most_sends_of_a_read_are_put_together(
    tmp_path: Path, nursery: trio.Nursery, flush: FlushDiskType
) -> None:
    pieces = [one(100 + queue) for queue in range(4)]
    with (
        patch.object(Writer, "put_run", autospec=True, side_effect=Writer.put_run) as run,
        patch.object(Writer, "put", autospec=True, side_effect=Writer.put) as put,
    ):
        pieces.append(b"".join(map(one, range(RUN_MAX))))
        answers, _ = await served(tmp_path, nursery, pieces, flush)
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


# ── Runs whose answers wait for the disk ──

FLUSH_DISK_TIMEOUT, SYSTEM_BUSY = 10, 2
BATCHED = range(100, 100 + RUN_MAX)
"""The sends of a run, by their opaques."""


class Disk(FaultyDisk):
    """A disk whose syncs of the log wait while its gate is closed."""

    def close_gate(self) -> Gate:
        return Gate(self, "fdatasync", f"commitlog.{segment_name(0)}")


@asynccontextmanager
async def waiting_run(
    root: Path, nursery: trio.Nursery, **settings: Any
) -> AsyncIterator[tuple[Desk, Client, Gate]]:
    """A run has been stored, and waits for the disk."""
    disk = Disk(root)
    async with open_desk(root, disk, flush_disk_type=SYNC, **settings) as desk:
        desk.topic()
        client = Client(desk, nursery)
        for queue in range(4):
            assert await client.take(one(queue))
        gate = disk.close_gate()
        client.theirs.send(b"".join(map(one, BATCHED)))
        with patch.object(Writer, "put_run", autospec=True, side_effect=Writer.put_run) as run:
            client.round()
        assert run.call_count == 1
        await gate.wait_for_a_call()
        yield desk, client, gate
        gate.let_go()
        await settled(desk)
        client.close()


async def settled(desk: Desk) -> None:
    """All that waited for the disk is answered."""
    with trio.fail_after(20):
        while desk.reactor.pools["send"].depth:
            await trio.lowlevel.checkpoint()


def codes(answers: bytes) -> dict[int, int]:
    """The response code of each answer by its opaque, in their order."""
    heads = [json.loads(bytes(header)) for _, header, _ in FrameDecoder().feed(answers)]
    return {head["opaque"]: head["code"] for head in heads}


@pytest.mark.trio
async def test_the_answers_of_a_run_come_when_it_is_on_disk(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with waiting_run(tmp_path, nursery) as (desk, client, gate):
        pool, latencies = desk.reactor.pools["send"], desk.reactor.stats.latencies
        counted = sum(latencies.kinds[310, 0, False, "success"].counts)
        assert pool.depth == RUN_MAX
        # What needs no disk is answered meanwhile.
        assert codes(await client.now(request_frame(9_999, 7, {}))) == {7: 3}
        assert client.received() == b""
        assert desk.stats.topic_in("t").messages_in == 4 + RUN_MAX, "it is stored"
        gate.let_go()
        await settled(desk)
        assert list(codes(client.received()).items()) == [(number, 0) for number in BATCHED]
        assert pool.depth == 0
        assert sum(latencies.kinds[310, 0, False, "success"].counts) == counted + RUN_MAX
        assert desk.store.commit_log.flushed == desk.store.commit_log.max_offset


@pytest.mark.trio
async def test_a_run_whose_sync_takes_too_long_is_told_so_with_the_whole_header(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with waiting_run(tmp_path, nursery) as (desk, client, gate):
        mock_clock.jump(4.9)
        await trio.testing.wait_all_tasks_blocked()
        assert client.received() == b""
        mock_clock.jump(0.2)
        await settled(desk)
        late = client.received()
        assert codes(late) == dict.fromkeys(BATCHED, FLUSH_DISK_TIMEOUT)
        gate.let_go()
        good = await client.take(one(100))
        # The same message in its place, but for its offsets.
        numbers = re.compile(rb'"(queueOffset|msgId)":"[0-9A-F]+"')
        told = numbers.sub(b"", by_opaque(late)[100][0])
        assert told == numbers.sub(b"", by_opaque(good)[100][0]).replace(b'"code":0', b'"code":10')
        assert desk.store.max_offset("t", 0) == 1 + RUN_MAX // 4 + 1


@pytest.mark.trio
async def test_a_run_whose_sync_fails_is_not_acknowledged_and_no_other_is_taken(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """D3."""
    disk = Disk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=SYNC) as desk:
        desk.topic()
        client = Client(desk, nursery)
        assert await client.take(one(0))
        disk.faults.append(Fault(name="fdatasync", path=segment_name(0)))
        answers = await client.take(b"".join(map(one, BATCHED)))
        assert codes(answers) == dict.fromkeys(BATCHED, FLUSH_DISK_TIMEOUT)
        assert desk.store.flags.has(Flag.NOT_WRITEABLE)
        refused = codes(await client.take(b"".join(map(one, BATCHED))))
        assert refused == dict.fromkeys(BATCHED, 14)
        client.close()


@pytest.mark.trio
async def test_a_peer_that_goes_while_its_run_waits_disturbs_nobody(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with waiting_run(tmp_path, nursery) as (desk, client, gate):
        for connection in [*client.selector.connections.values()]:
            connection.close("test")
        gate.let_go()
        await settled(desk)
        await trio.testing.wait_all_tasks_blocked()
        unsent = desk.reactor.stats.latencies.kinds[310, 0, False, "write_channel_failed"]
        assert sum(unsent.counts) == RUN_MAX
        assert desk.store.max_offset("t", 0) == 1 + RUN_MAX // 4


@pytest.mark.trio
async def test_a_run_is_no_longer_than_its_pool_has_room(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    small = RemotingConfig(send_thread_pool_queue_capacity=RUN_MAX + 5)
    async with waiting_run(tmp_path, nursery, remoting=small) as (desk, client, gate):
        more = range(200, 210)
        busy = codes(await client.now(b"".join(map(one, more))))
        assert busy == dict.fromkeys(more[5:], SYSTEM_BUSY)
        assert desk.reactor.pools["send"].depth == RUN_MAX + 5
        gate.let_go()
        await settled(desk)
        assert codes(client.received()) == dict.fromkeys([*BATCHED, *more[:5]], 0)


# ── Runs behind access control ──

SECRET = b"the-secret-of-both"
REFUSED = 1


def gate_of(stats: AccessStats) -> AccessGate:
    """`sender` may send to `t` and nowhere else, as may `another`."""
    acl = PlainAcl(())
    found = {
        name: PlainAccount(access_key=name, secret=SECRET, topics={"t": Perm.PUB})
        for name in ("sender", "another")
    }
    acl.table = AclTable(found, WhiteAddresses([""]))
    return AccessGate(acl, "C", stats)


def signed(
    number: int,
    account: str | None = "sender",
    *,
    topic: str = "t",
    secret: bytes = SECRET,
    body: bytes = b"hello",
) -> bytes:
    fields = send_fields(topic, number % 4, i=f"UNIQ_KEY\x01unique{number}\x02TAGS\x01red")
    texts = {name: str(value).lower() for name, value in fields.items() if value is not None}
    texts["i"] = str(fields["i"])
    asked = texts if account is None else with_signature(account, secret, texts, body)
    return request_frame(310, number, asked, b"hello")


@pytest.mark.trio
async def test_a_run_behind_access_control_has_every_request_checked(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """S4: nothing of a run passes unchecked, and what is refused is refused once."""
    stats = AccessStats()
    odd = {
        107: (signed(107, topic="other"), REFUSED),
        111: (signed(111, None), REFUSED),
        114: (signed(114, secret=b"wrong"), REFUSED),
        118: (signed(118, body=b"other"), REFUSED),
        121: (signed(121, "nobody"), REFUSED),
        125: (signed(125, "another"), 0),
        126: (signed(126, "another", topic="other"), REFUSED),
    }
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.topic("other")
        client = Client(desk, nursery, gate_of(stats))
        for queue in range(4):
            assert codes(await client.take(signed(queue))) == {queue: 0}
        frames = [odd[number][0] if number in odd else signed(number) for number in BATCHED]
        with patch.object(Writer, "put_run", autospec=True, side_effect=Writer.put_run) as run:
            answers = codes(await client.take(b"".join(frames)))
        assert answers == {n: odd[n][1] if n in odd else 0 for n in BATCHED}
        assert (stats.not_authorized, stats.not_authenticated) == (2, 4)
        together = [len(call.args[1]) for call in run.call_args_list]
        assert max(together) >= 6
        stored = sum(desk.store.max_offset("t", queue) for queue in range(4))
        assert stored == 4 + RUN_MAX - 6
        assert desk.store.max_offset("other", 0) == 0
        client.close()


@pytest.mark.trio
async def test_a_rate_of_each_user_counts_every_request(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        client = Client(desk, nursery, gate_of(AccessStats()))
        for queue in range(4):
            assert codes(await client.take(signed(queue))) == {queue: 0}
        desk.reactor.shared.users.allow(1)
        answers = codes(await client.take(b"".join(map(signed, BATCHED))))
        assert sorted(answers.values()).count(SYSTEM_BUSY) == RUN_MAX - 1
        client.close()
