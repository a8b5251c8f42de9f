"""One bit turns over in a data directory: what the verifier, a start and a pull make of it.

A directory of a broker that was stopped, and one of a broker that was killed, are made once; each
flip works on a copy. What holds after it: the start serves, or is refused with the name of the
file; no pull hands out a body that was not sent, nor a record that is not whole; a bit in the log
costs one message at most.
"""

from __future__ import annotations

import re
import shutil
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import trio

from aerobee.broker.broker import Broker
from aerobee.broker.errors import TableDamaged
from aerobee.remoting.wire.headers.offset import UpdateConsumerOffset
from aerobee.store.errors import StoreRefused
from aerobee.store.format import properties
from aerobee.store.format.index import IndexShape
from aerobee.store.format.record import HEAD, read
from aerobee.store.tools.verify import verify
from tests.broker.desk import Desk, body_of, broker_config, said, send_header
from tests.kit.campaign import Campaign
from tests.kit.quick_disk import QuickDisk
from tests.kit.running_store import TrioClock
from tests.kit.store_model import INDEX_ENTRIES, INDEX_SLOTS, log_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from random import Random

    from aerobee.store.format.record import Record
    from aerobee.store.tools.verify import Verification
    from tests.kit.campaign import Run

SEGMENT_BYTES = 16 << 10
TOPICS = ("orders", "payments")
QUEUES = 2
MESSAGES = 48
GROUP = "readers"
SHAPE = IndexShape(INDEX_SLOTS, INDEX_ENTRIES)
CHECKPOINT_USED = 24
KILLED_EVERY = 4
"""Of so many flips one is in the directory that a kill has left."""
FOUND_SHARE = 0.95
SIGMAS = 3
"""By how much chance may move a share of so many flips."""
WEIGHTS = {"log": 80, "queue": 8, "index": 8, "checkpoint": 2, "config": 1.5, "mark": 0.5}
"""How often which kind of file is hit: of all bytes, nearly all are the log's."""

Sent = dict[tuple[str, int], set[bytes]]
"""Bodies by topic and queue id."""


class Template(NamedTuple):
    """A directory to copy, what was sent into it, and its files by kind."""

    root: Path
    sent: Sent
    places: dict[str, list[tuple[Path, int]]]
    """Per kind: files, from the root on, and how many bytes of each are in use."""
    bodies: tuple[range, ...]
    """Where the log holds bodies, by physical offset."""


class Flip(NamedTuple):
    """One bit of one file."""

    kind: str
    path: Path
    position: int
    bit: int
    in_body: bool

    def __str__(self) -> str:
        return f"{self.path} byte {self.position} bit {self.bit}"


class Outcome(NamedTuple):
    """What came of it."""

    found: bool
    """By the verifier, before any start."""
    refused: str
    """Why the start was refused; "" when it served."""
    served: int
    """Messages handed out."""


# ── Directories ──


def make_templates(folder: Path) -> tuple[Template, Template]:
    """A directory that was stopped, and one that was left by a kill."""
    sent: Sent = {}
    trio.run(_fill, folder / "stopped", folder / "killed", sent)
    return _template(folder / "stopped", sent), _template(folder / "killed", sent)


async def _fill(root: Path, copy: Path, sent: Sent) -> None:
    async def work(desk: Desk) -> None:
        for topic in TOPICS:
            desk.topic(topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        desk.groups.create(GROUP, 0)
        for number in range(MESSAGES):
            await _send(desk, number, sent)
            if number == MESSAGES // 2:
                assert await desk.store.flush_queues()
        offset = UpdateConsumerOffset(
            consumer_group=GROUP, topic=TOPICS[0], queue_id=0, commit_offset=5
        )
        await desk.ask(offset)
        await desk.saver.save_all()
        # A file that is being made is another one a moment later.
        making = shutil.ignore_patterns("*.new")
        await trio.to_thread.run_sync(partial(shutil.copytree, root, copy, ignore=making))

    await with_broker(root, work)


async def _send(desk: Desk, number: int, sent: Sent) -> None:
    topic, queue_id = TOPICS[number % 2], number // 2 % QUEUES
    named = {"UNIQ_KEY": f"7F00{number:028d}", "KEYS": f"k{number}", "TAGS": "ab"[number % 2]}
    body = f"message {number} of {topic}: ".encode().ljust(1 << 10, b"x")
    header = send_header(topic, queue_id=queue_id, properties=properties.encode(named))
    answer = await desk.ask(header, body)
    assert answer.code == 0, answer
    sent.setdefault((topic, queue_id), set()).add(body)


def _template(root: Path, sent: Sent) -> Template:
    places: dict[str, list[tuple[Path, int]]] = {kind: [] for kind in WEIGHTS}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root)
        size = len(path.read_bytes().rstrip(b"\0"))
        if name.parts[0] in KINDS:
            kind = KINDS[name.parts[0]]
            size = CHECKPOINT_USED if kind == "checkpoint" else size
            places[kind] += [(name, size)] if size else []
    bodies = []
    for position, data in log_records(root):
        begin = position + HEAD.size
        bodies.append(range(begin, begin + len(read(data).body)))
    return Template(root, sent, places, tuple(bodies))


KINDS = {
    "commitlog": "log",
    "consumequeue": "queue",
    "index": "index",
    "checkpoint": "checkpoint",
    "config": "config",
    "abort": "mark",
    "lock": "mark",
}


async def with_broker(root: Path, work: Callable[[Desk], Awaitable[None]]) -> None:
    """A broker without its sockets, from load to close.

    Raises: StoreRefused, TableDamaged.
    """
    config = broker_config(root, mapped_file_size_commit_log_bytes=SEGMENT_BYTES, **SMALL)
    desk = Desk(Broker(config, disk=QuickDisk(), clock=TrioClock()))
    desk.load()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.store.run)
            await work(desk)
            await desk.saver.save_all()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await desk.store.close()


SMALL = {"mapped_file_size_consume_queue_bytes": 200}


# ── One flip ──


def flip_once(template: Template, random: Random, scratch: Path) -> tuple[Flip, Outcome]:
    """Copy, flip, verify, start, pull everything, stop. Asserts what must hold."""
    flip = choose(template, random)
    shutil.copytree(template.root, scratch)
    try:
        data = bytearray((scratch / flip.path).read_bytes())
        data[flip.position] ^= 1 << flip.bit
        (scratch / flip.path).write_bytes(data)
        seen = looked_at(scratch)
        found = not seen.sound or bool(seen.doubts)
        refused, served = trio.run(_start, scratch, template, flip)
        if refused:
            assert flip.path.name in refused or between_segments(flip, refused), (
                f"{flip}: {refused}"
            )
        elif flip.kind == "log":
            assert served >= MESSAGES - 1, f"{flip}: {served} of {MESSAGES} messages are left"
    finally:
        shutil.rmtree(scratch)
    return flip, Outcome(found, refused, served)


def between_segments(flip: Flip, refused: str) -> bool:
    """Whether a refusal names two segments between which the flip is: a record is not noticed
    before the next one of its queue if the flip moved it to another.
    """
    named = sorted(re.findall(r"commitlog/(\d{20})", refused))
    return flip.kind == "log" and len(named) > 1 and named[0] <= flip.path.name <= named[-1]


def choose(template: Template, random: Random) -> Flip:
    """A bit, of a file of a kind that the weights choose."""
    kinds = [kind for kind in WEIGHTS if template.places[kind]]
    [kind] = random.choices(kinds, [WEIGHTS[kind] for kind in kinds])
    files = template.places[kind]
    [(path, size)] = random.choices(files, [size for _, size in files])
    position = random.randrange(size)
    start = int(path.name) if kind == "log" else 0
    in_body = kind == "log" and any(start + position in body for body in template.bodies)
    return Flip(kind, path, position, random.randrange(8), in_body)


def looked_at(root: Path) -> Verification:
    """The verifier's word on a directory of ours."""
    return verify(root)


async def _start(root: Path, template: Template, flip: Flip) -> tuple[str, int]:
    served = 0

    async def pull_all(desk: Desk) -> None:
        nonlocal served
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                async for record in _pulled(desk, topic, queue_id, flip):
                    body = bytes(record.body)
                    assert body in template.sent[topic, queue_id], f"{flip}: {body[:40]!r}"
                    assert crc32(body) & 0x7FFF_FFFF == record.body_crc, f"{flip}"
                    served += 1

    try:
        await with_broker(root, pull_all)
    except (StoreRefused, TableDamaged) as refusal:
        return str(refusal), served
    return "", served


async def _pulled(desk: Desk, topic: str, queue_id: int, flip: Flip) -> AsyncIterator[Record]:
    """The records of a queue, to the end of what the broker gives. Raises: RecordDamaged."""
    at = 0
    while True:
        answer = await desk.pull(topic, at, queue_id=queue_id)
        if answer.header is None:
            # The bit was in the name of a topic, or in what it may be used for.
            assert flip.kind == "config", f"{flip}: {answer.remark}"
            return
        following = int(said(answer)["nextBeginOffset"])
        data, position = body_of(answer), 0
        while answer.code == 0 and position < len(data):
            record = read(data, position)
            yield record
            position += record.size
        if following <= at:
            return
        at = following


# ── Campaign ──


def flips(run: Run) -> None:
    """Single flips; what must be found of them is counted where the last stop was a clean one."""
    stopped, killed = make_templates(run.directory)
    for cycle in run.cycles():
        template = stopped if cycle.number % KILLED_EVERY else killed
        flip, outcome = flip_once(template, cycle.rng, run.directory / "scratch")
        run.counts["starts refused"] += bool(outcome.refused)
        run.counts["messages pulled"] += outcome.served
        if template is stopped:
            assert outcome.found or not flip.in_body, f"the verifier does not see {flip}"
            run.counts["flips in a stopped directory"] += 1
            run.counts["found by verify"] += outcome.found
            run.counts["in bodies, all found"] += flip.in_body
    of = run.counts["flips in a stopped directory"]
    chance = SIGMAS * sqrt(of * FOUND_SHARE * (1 - FOUND_SHARE))
    assert run.counts["found by verify"] >= FOUND_SHARE * of - chance, dict(run.counts)


R7 = Campaign(
    key="R7",
    title="single bit flips in log, queues, index, checkpoint, tables and marks",
    unit="flips",
    t1=80,
    t2=10_000,
    run=flips,
)
