"""Sends that are served together, those of one read or of several connections, leave the same
answers and records as one at a time.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.broker.access.gate import Gate as AccessGate
from aerobee.broker.access.plain_authority import PlainAuthority
from aerobee.broker.access.white_addresses import NO_ADDRESSES
from aerobee.broker.answers import refusal
from aerobee.broker.counters.server_stats import AccessStats
from aerobee.broker.users.plain_acl import Perm, PlainAccount, plain_table
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.left_bytes import unread_bytes
from aerobee.remoting.server.poller import READ, EpollPoller
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.run import RUN_MAX
from aerobee.remoting.server.selector import Selector
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.frame import HEAD, FrameDecoder
from aerobee.remoting.wire.request_signature import with_signature
from aerobee.store.config import FlushDiskType
from aerobee.store.errors import MessageIllegal, SegmentLate
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.flags import Flag
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import Record, read
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.messages import writer as writer_module
from aerobee.store.messages.writer import Writer
from aerobee.store.results import PutStatus
from tests.broker.desk import Desk, open_desk
from tests.broker.round_clients import CONNECTIONS, Clients
from tests.broker.runs import Runs
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate
from tests.kit.raw_client import batch_body, pull_fields, request_frame, send_fields
from tests.kit.store_model import Sent
from tests.kit.store_model import batch_body as long_batch
from tests.test_depth import DEEPEST, Depth, Named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from trio.testing import MockClock

    from aerobee.store.queues.dispatch_request import DispatchRequest
    from tests.kit.logged import Logged
    from tests.kit.tls import Certificate

SYNC = FlushDiskType.SYNC_FLUSH
PART_BYTES = 50_000
"""A part of a long batch has more, another send has less."""
GENERATED = re.compile(rb'(?<=UNIQ_KEY\x01)[0-9A-F]{32}|(?<=transactionId":")[0-9A-F]{32}')
"""Unique keys that the broker makes."""


def one(
    number: int, body: bytes = b"hello", *, code: int = 310, flag: int = 0, **fields: object
) -> bytes:
    asked = {"i": f"UNIQ_KEY\x01unique{number}\x02TAGS\x01red"} | fields
    return request_frame(code, number, send_fields("t", number % 4, **asked), body, flag=flag)


def reworded(frame: bytes, **envelope: object) -> bytes:
    """The same request with other members in its envelope; None removes one."""
    ((_, header, body),) = FrameDecoder().feed(frame)
    members = {**json.loads(bytes(header)), **envelope}
    head = json.dumps({name: value for name, value in members.items() if value is not None})
    return HEAD.pack(4 + len(head) + len(body), len(head)) + head.encode() + body


ODD = {
    "texts for numbers": reworded(one(500), opaque="500", code="310", flag="0"),
    "members that the broker sets": reworded(one(500), body="x", pool="x", answered=1, arrived=9),
    "an answer already": reworded(one(500), answered=True, encoding=2),
    "no fields": reworded(one(500), extFields=None),
    "fields that are a list": reworded(one(500), extFields=["pg", "t"]),
    "a key of its own": one(500, i="KEYS\x01a b\x02UNIQ_KEY\x01abc\x02TAGS\x01red\x02"),
    "no name of a unique key": one(500, i="abc\x02TAGS\x01red"),
    "no unique key where others have one": one(500, i="UNIQ_KEY\x01\x02TAGS\x01red"),
    "a unique key that is none where others have one": one(500, i="UNIQ_KEY\x01a-b\x02TAGS\x01red"),
    "two unique keys": one(500, i="UNIQ_KEY\x01abc\x02UNIQ_KEY\x01def"),
    "two unique keys, one empty": one(500, i="UNIQ_KEY\x01abc\x02UNIQ_KEY\x01\x02WAIT\x01true"),
    "the end of another name": one(500, i="UNIQ_KEY\x01abc\x02NO_UNIQ_KEY\x01def"),
    "pieces without values": one(500, i="\x02TAGS\x02UNIQ_KEY\x01abc\x02\x02TAGS\x01\x02x"),
    "the mark of an end in front": one(500, i="\x02UNIQ_KEY\x01abc"),
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

    def __init__(
        self,
        desk: Desk,
        nursery: trio.Nursery,
        gate: AccessGate | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.desk = desk
        self.runs = runs or Runs()
        reactor = desk.reactor
        self.selector = reactor.add_selector(EpollPoller())
        routes = self.runs.watched(resolve(desk.broker.routes, reactor.pools))
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
    runs: Runs | None = None,
) -> tuple[dict[int, tuple[bytes, bytes]], list[Record]]:
    """The answers, and what is in the log then."""
    # A busy machine must not have sends refused.
    patient = RemotingConfig(wait_time_mills_in_send_queue=600_000)
    async with open_desk(root, remoting=patient, flush_disk_type=flush) as desk:
        desk.topic()
        desk.topic("single", write_queue_nums=1, read_queue_nums=1)
        client = Client(desk, nursery, runs=runs)
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
    pieces.append(b"".join(map(one, range(RUN_MAX))))
    runs = Runs()
    answers, _ = await served(tmp_path, nursery, pieces, flush, runs)
    assert len(answers) == RUN_MAX + 4
    assert runs.sizes == [RUN_MAX]


@pytest.mark.trio
@pytest.mark.parametrize(("error", "said"), [(RuntimeError("test"), 1), (MessageIllegal("x"), 0)])
async def test_when_a_run_fails_each_send_is_served_by_itself(
    tmp_path: Path, nursery: trio.Nursery, logged: Logged, error: Exception, said: int
) -> None:
    """The log says it where the error is one of ours."""
    frames = [*map(one, range(RUN_MAX))]
    alone = await served(tmp_path / "alone", nursery, frames)
    together = await served(tmp_path / "together", nursery, [b"".join(frames)], runs=Runs(error))
    assert together == alone
    found = [(line["code"], line["exc_info"]) for line in logged if line["event"] == "run.failed"]
    assert set(found) == {(310, error)} if said else not found


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
    # The thread makes the syncs, so that the loop goes on while a gate holds one.
    async with open_desk(
        root, disk, flush_disk_type=SYNC, sync_flush_inline=False, **settings
    ) as desk:
        desk.topic()
        client = Client(desk, nursery)
        for queue in range(4):
            assert await client.take(one(queue))
        gate = disk.close_gate()
        client.theirs.send(b"".join(map(one, BATCHED)))
        client.round()
        assert client.runs.sizes == [RUN_MAX]
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
    authority = PlainAuthority()
    accounts = [
        PlainAccount(access_key=name, secret=SECRET, topics={"t": Perm.PUB})
        for name in ("sender", "another")
    ]
    authority.replace(plain_table(accounts, NO_ADDRESSES))
    return AccessGate(authority, "C", stats)


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
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        desk.topic("other")
        client = Client(desk, nursery, gate_of(stats))
        for queue in range(4):
            assert codes(await client.take(signed(queue))) == {queue: 0}
        frames = [odd[number][0] if number in odd else signed(number) for number in BATCHED]
        answers = codes(await client.take(b"".join(frames)))
        assert answers == {n: odd[n][1] if n in odd else 0 for n in BATCHED}
        assert (stats.not_authorized, stats.not_authenticated) == (2, 4)
        assert max(client.runs.sizes) >= 6
        stored = sum(desk.store.max_offset("t", queue) for queue in range(4))
        assert stored == 4 + RUN_MAX - 6
        assert desk.store.max_offset("other", 0) == 0
        client.close()


@pytest.mark.trio
async def test_a_rate_of_each_user_counts_every_request(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        client = Client(desk, nursery, gate_of(AccessStats()))
        for queue in range(4):
            assert codes(await client.take(signed(queue))) == {queue: 0}
        desk.reactor.shared.users.allow(1, 0)
        answers = codes(await client.take(b"".join(map(signed, BATCHED))))
        assert sorted(answers.values()).count(SYSTEM_BUSY) == RUN_MAX - 1
        client.close()


# ── Runs of several connections ──

PATIENT = RemotingConfig(wait_time_mills_in_send_queue=600_000)
"""A busy machine must not have sends refused."""
READ_BYTES = 40 << 10
"""What one read takes of as many connections."""


class Served(NamedTuple):
    """What came of rounds: all that a peer, the log and the counters say."""

    answers: list[list[tuple[bytes, int]]]
    closed: list[bool]
    log: list[Record]
    counted: tuple[object, ...]


def heard(answers: bytes) -> list[tuple[bytes, int]]:
    """Header and length of the body of each answer; a pulled message tells when it was stored."""
    return [(GENERATED.sub(b"?", h), len(b)) for _, h, b in FrameDecoder().feed(answers)]


def counted(desk: Desk) -> tuple[object, ...]:
    stats = desk.reactor.stats
    kinds = {key: sum(kind.counts) for key, kind in stats.latencies.kinds.items()}
    pools = {name: (pool.served, pool.refused) for name, pool in desk.reactor.pools.items()}
    topic = desk.stats.topic_in("t")
    return stats.requests, stats.frames_rejected, kinds, pools, topic.messages_in, topic.bytes_in


async def served_in_rounds(
    nursery: trio.Nursery,
    rounds: list[dict[int, bytes]],
    *,
    gather: bool = True,
    prepare: Callable[[Clients], None] = lambda _: None,
    gate: Any = None,
    runs: Runs | None = None,
) -> Served:
    with tempfile.TemporaryDirectory() as root:
        async with open_desk(Path(root), remoting=PATIENT) as desk:
            desk.topic()
            desk.topic("single", write_queue_nums=1, read_queue_nums=1)
            clients = Clients(desk, nursery, gate=gate, gather=gather, runs=runs)
            prepare(clients)
            for said in rounds:
                await clients.round(said)
            found = Served(
                [heard(client.answers) for client in clients.all],
                [client.connection.closed for client in clients.all],
                records(desk),
                counted(desk),
            )
            assert desk.store.dispatch_behind_bytes == 0
            clients.close()
    return found


def always(frame: bytes) -> Callable[[int], bytes]:
    return lambda _: frame


KINDS: dict[str, Callable[[int], bytes]] = {
    "plain": one,
    "to a queue of others": lambda number: one(number, e=0),
    "of 20 KiB": lambda number: one(number, bytes(20 << 10)),
    "two": lambda number: one(number) + one(number + 100),
    "one and a half": lambda number: one(number) + one(number + 100)[:50],
    "one and bad bytes": lambda number: one(number) + b"\xff" * 8,
    "offering MSGPACK": lambda number: one(number, aeroSer="2"),
    "long names": lambda number: ODD["long names"],
    "a pull": lambda number: request_frame(11, number, pull_fields("g", "t", number % 4, 0)),
    "the largest offset": lambda number: request_frame(
        30, number, {"topic": "t", "queueId": number % 4}
    ),
    "nothing": lambda number: b"",
}
# Those that need several rounds to arrive come in any order.
KINDS |= {name: always(frame) for name, frame in ODD.items() if len(frame) < READ_BYTES}
Said = list[list[tuple[int, str]]]


def frames(said: Said) -> list[dict[int, bytes]]:
    """The bytes of each round."""
    numbers = iter(range(1, 10_000))
    return [{client: KINDS[kind](next(numbers)) for client, kind in of} for of in said]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.permutations(range(CONNECTIONS)).flatmap(
            lambda order: st.tuples(
                *(
                    st.tuples(
                        st.just(client),
                        st.one_of(
                            st.sampled_from(["plain", "to a queue of others"]),
                            st.sampled_from([*KINDS]),
                        ),
                    )
                    for client in order
                )
            ).map(list)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_requests_of_one_round_in_any_mixture_are_served_as_one_by_one(said: Said) -> None:
    """Whatever the connections send in a round, and whatever they sent before."""
    rounds = frames([[(n, "plain") for n in range(CONNECTIONS)], *said])

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            alone = await served_in_rounds(nursery, rounds, gather=False)
            together = await served_in_rounds(nursery, rounds)
            for ours, theirs in zip(together, alone, strict=True):
                assert ours == theirs

    trio.run(both)


KINDS_MIXED: Said = [
    [(0, "plain"), (1, "the largest offset"), (2, "plain"), (3, "a pull"), (4, "plain")],
    [(2, "plain"), (1, "not JSON"), (0, "one-way"), (3, "offering MSGPACK"), (4, "long names")],
    [(4, "delayed"), (3, "half"), (2, "a batch"), (0, "of 20 KiB")],
]


@pytest.mark.trio
async def test_a_send_before_bad_bytes_is_served_in_a_round_too(nursery: trio.Nursery) -> None:
    everyone = [(n, "plain") for n in range(CONNECTIONS)]
    rounds = frames([everyone, [*everyone[:2], (2, "one and bad bytes"), *everyone[3:]]])
    alone = await served_in_rounds(nursery, rounds, gather=False)
    assert await served_in_rounds(nursery, rounds) == alone
    assert [len(answers) for answers in alone.answers] == [2] * CONNECTIONS
    assert alone.closed == [False, False, True, False, False]


@pytest.mark.trio
async def test_over_tls_a_round_is_served_as_one_by_one(
    nursery: trio.Nursery, shown: Certificate
) -> None:
    def prepare(clients: Clients) -> None:
        for client in clients.all[::2]:
            client.speak_tls(shown)

    rounds = frames([[(n, "plain") for n in range(CONNECTIONS)], *KINDS_MIXED])
    alone = await served_in_rounds(nursery, rounds, gather=False, prepare=prepare)
    assert await served_in_rounds(nursery, rounds, prepare=prepare) == alone
    assert [len(answers) for answers in alone.answers] == [3, 2, 4, 4, 4]


@pytest.mark.trio
async def test_a_gate_lets_in_what_is_gathered_and_refuses_the_rest(nursery: trio.Nursery) -> None:
    def gate(command: Any, connection: Any) -> Answer | None:
        return Answer(16, remark="closed") if command.opaque % 3 == 0 else None

    everyone = [(n, "plain") for n in range(CONNECTIONS)]
    rounds = frames([everyone, everyone, everyone, *KINDS_MIXED])
    alone = await served_in_rounds(nursery, rounds, gather=False, gate=gate)
    runs = Runs()
    assert await served_in_rounds(nursery, rounds, gate=gate, runs=runs) == alone
    assert max(runs.sizes) == 4
    assert sum(b"closed" in header for answers in alone.answers for header, _ in answers) >= 5


@pytest.mark.trio
async def test_the_sends_of_a_round_are_put_together_up_to_a_number(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    count = RUN_MAX + 7
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery, count)
        for said in frames([[(n, "plain") for n in range(count)]] * 2):
            await clients.round(said)
        assert clients.runs.sizes[-2:] == [RUN_MAX, 7]
        assert all(len(heard(client.answers)) == 2 for client in clients.all)
        clients.close()


@pytest.mark.trio
async def test_a_lone_send_is_not_gathered(tmp_path: Path, nursery: trio.Nursery) -> None:
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery)
        for said in frames([[(0, "plain")], [(0, "plain")], [(1, "plain")]]):
            await clients.round(said)
        assert clients.runs.sizes == []
        clients.close()


@pytest.mark.trio
async def test_when_a_run_fails_each_send_of_it_is_served_by_itself(nursery: trio.Nursery) -> None:
    rounds = frames([[(n, "plain") for n in range(CONNECTIONS)]] * 2)
    alone = await served_in_rounds(nursery, rounds, gather=False)
    runs = Runs(RuntimeError("test"))
    assert await served_in_rounds(nursery, rounds, runs=runs) == alone
    assert runs.failed


@pytest.mark.trio
async def test_a_send_that_is_refused_is_put_and_counted_once(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    dead = one(2, i="UNIQ_KEY\x01abc\x02RETRY_TOPIC\x01t", b="%RETRY%g", j=99)
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        client = Client(desk, nursery)
        await client.take(one(0))
        await client.take(one(1, bytes(5 << 20)))
        assert desk.store.stats.puts_refused == 1
        desk.store.flags.set(Flag.DISK_FULL, "test")
        await client.take(dead)
        assert desk.store.stats.puts_refused == 2
        assert desk.stats.given_up("g", "t").dead_letters == 0, "it was not stored"
        client.close()


@pytest.mark.trio
async def test_gathered_sends_that_find_the_segment_late_are_served_when_it_is_there(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits by itself, and nothing of its connection is read meanwhile."""
    put_run, late = Writer.put_run, False

    def puts(writer: Writer, *how: Any, **more: Any) -> tuple[list[DispatchRequest], PutStatus]:
        return ([], PutStatus.SEGMENT_LATE) if late else put_run(writer, *how, **more)

    monkeypatch.setattr(Writer, "put_run", puts)
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery)
        everyone = [(n, "plain") for n in range(CONNECTIONS)]
        first, second, third = frames([everyone, everyone, everyone])
        await clients.round(first)
        late = True
        await clients.round(second)
        assert all(client.connection.postponed for client in clients.all)
        assert all(client.connection.inbound for client in clients.all)
        await clients.round(third)
        late = False
        assert [len(heard(client.answers)) for client in clients.all] == [1] * CONNECTIONS
        clients.reactor.resume()
        await clients.round({})
        for client in clients.all:
            opaques = [json.loads(header)["opaque"] for header, _ in heard(client.answers)]
            assert opaques == sorted(opaques)
            assert len(opaques) == 3
            assert not client.connection.inbound
        assert len(records(desk)) == 3 * CONNECTIONS
        clients.close()


@pytest.mark.trio
async def test_a_long_batch_that_finds_the_segment_late_rests_until_it_is_there(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first part is stored; it takes no turn before the next one can be."""
    append, late, tries = CommitLog.append, False, 0

    def appends(log: CommitLog, data: bytes, stored_ms: int, **how: bool) -> bool:
        nonlocal late, tries
        if len(data) < PART_BYTES:
            return append(log, data, stored_ms, **how)
        tries += 1
        if late:
            return False
        late = tries == 1
        return append(log, data, stored_ms, **how)

    def roll(log: CommitLog, size: int) -> None:
        raise SegmentLate

    monkeypatch.setattr(writer_module, "PIECES_TOGETHER", 1)
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery, 2)
        batch = long_batch([Sent(bytes(100), b"")] * 3 * writer_module.BATCH_STEP)
        long = request_frame(320, 7, send_fields("t", 0, m=True), batch)
        await desk.send(body=b"the first segment is there")
        monkeypatch.setattr(CommitLog, "append", appends)
        monkeypatch.setattr(CommitLog, "roll", roll)
        with trio.fail_after(10):
            await clients.round({0: long + one(8), 1: one(9)})
        assert tries == 2
        assert clients.all[0].connection.postponed
        assert not clients.reactor.shared.long_requests.held
        assert heard(clients.all[0].answers) == []
        assert len(heard(clients.all[1].answers)) == 1
        clients.reactor.resume()
        await clients.round({})
        assert tries == 3, "it was late again"
        late = False
        clients.reactor.resume()
        await clients.round({})
        assert tries == 5
        opaques = [json.loads(header)["opaque"] for header, _ in heard(clients.all[0].answers)]
        assert opaques == [7, 8]
        assert desk.store.stats.messages_put == 3 * writer_module.BATCH_STEP + 3
        clients.close()


@pytest.mark.trio
async def test_a_send_whose_connection_closed_before_it_was_served_is_dropped(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    closes = False

    def gate(command: Any, connection: Any) -> None:
        if closes and connection is clients.all[3].connection:
            clients.all[1].connection.close("test")

    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery, gate=gate)
        everyone = [(n, "plain") for n in range(CONNECTIONS)]
        first, second = frames([everyone, everyone])
        await clients.round(first)
        closes = True
        await clients.round(second)
        assert [len(heard(client.answers)) for client in clients.all] == [2, 1, 2, 2, 2]
        assert len(records(desk)) == 2 * CONNECTIONS - 1
        clients.close()


@pytest.mark.trio
async def test_what_is_gathered_is_never_received_over(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Bodies that together are longer than the buffer, each with bytes of its own."""
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        count = 24
        clients = Clients(desk, nursery, count)
        await clients.round({n: one(n) for n in range(count)})
        bodies = [bytes([n]) * (15 << 10) for n in range(count)]
        for _ in range(3):
            await clients.round({n: one(n, bodies[n]) for n in range(count)})
        stored = [record.body for record in records(desk)]
        assert stored[count:] == bodies * 3
        clients.close()


@pytest.mark.trio
async def test_the_way_of_gathered_sends_is_not_deeper_than_that_of_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_desk(tmp_path, remoting=PATIENT) as desk:
        desk.topic()
        clients = Clients(desk, nursery, RUN_MAX + 3)
        everyone = [(n, "plain") for n in range(RUN_MAX + 2)]
        first, second = frames([everyone, [*everyone, (RUN_MAX + 2, "one-way")]])
        await clients.round(first)
        with Depth(Selector.go_on, MappedFile.append, MappedFile.append_each) as depth:
            await clients.round(second)
        clients.close()
    # As many as may be, those before another request, and that one.
    assert len(depth.ways) == 3
    assert max(map(len, depth.ways)) < DEEPEST, depth.ways
