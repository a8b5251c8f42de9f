"""The campaign of greedy requests: whatever a request says, it keeps the loop for 50 ms at most.

Every request code gets absurd counts and long texts in each field, and bodies that are deep, wide,
long, packed or no JSON at all, on the broker's port and on the name server's. The loop is watched
from inside, on the clock of its own thread, so that a busy machine is not taken for a busy loop.
What was too long is asked again, for a machine stands still by itself now and then.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec

from aerobee.broker.broker import Broker
from aerobee.remoting.wire.codes import RequestCode
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from tests.broker.desk import broker_config
from tests.kit.campaign import Campaign
from tests.kit.raw_client import Closed, RawConnection
from tests.kit.stall_watch import WatchedBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.remoting.wire.header import Header
    from tests.kit.campaign import Run

STALL_MS: Final = 50.0
REPEATS: Final = 3
PATIENCE_S: Final = 20.0
KIB: Final = 1 << 10
MIB: Final = 1 << 20
NUMBERS: Final = (2**31 - 1, -1, 2**63 - 1)
LONG_TEXT: Final = "t;" * 30_000
QUESTION: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
"""What both ports answer at once: its answer says that what was asked before has been taken."""


class Greedy(NamedTuple):
    """One request: its name for the report, where it goes, and what is in it."""

    name: str
    to_name_server: bool
    code: int
    fields: dict[str, object]
    body: bytes


class Asked(NamedTuple):
    """A request, and when it was under way."""

    greedy: Greedy
    began_s: float
    ended_s: float


# ── What is asked ──


@cache
def bodies() -> dict[str, bytes]:
    """What a body may hold at worst, by name."""
    return {
        "deep": b"[" * MIB,
        "deep and closed": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "many keys": b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(60_000)) + b"}",
        "one key often": b"{" + b",".join([b'"consumerGroup":"g"'] * 50_000) + b"}",
        "a huge number": b'{"consumerGroup":' + b"9" * MIB + b"}",
        "a long text": b'{"consumerGroup":"' + b"x" * (15 * MIB) + b'"}',
        "odd keys": b"{" + b",".join([b"{1:2}:3"] * 100_000) + b"}",
        "number keys": b"{" + b",".join(b"%d:1" % n for n in range(30_000)) + b"}",
        "references": b'{"a":[' + b",".join([b'{"$ref":"$.b"}'] * 10_000) + b'],"b":[]}',
        "many arrays": b'{"acks":[' + b",".join([b"[[1],[]]"] * 28_000) + b"],1:2}",
        "quotes": b'"\\' * (MIB // 2),
        "no JSON": bytes(15 * MIB),
        "subscriptions": heartbeat(70_000),
        "some subscriptions": heartbeat(30_000),
        "locks": locks(25_000),
        "topics": registration(20_000),
        "all the topics": registration(80_000),
        "packed topics": packed_registration(80_000),
        "packed zeros": zlib.compress(bytes(64 * MIB)),
        "tiny messages": message(b"x") * 40_000,
        "empty messages": message(b"") * 180_000,
    }


def heartbeat(count: int) -> bytes:
    """One group that subscribes to many topics."""
    topics = ",".join(['{"topic":"t"}'] * count)
    group = f'{{"groupName":"g","subscriptionDataSet":[{topics}]}}'
    return f'{{"clientID":"c","consumerDataSet":[{group}]}}'.encode()


def locks(count: int) -> bytes:
    """Many queues in one lock request."""
    queues = ",".join(['{"brokerName":"b","queueId":0,"topic":"t"}'] * count)
    return f'{{"clientId":"c","consumerGroup":"g","mqSet":[{queues}]}}'.encode()


def registration(count: int) -> bytes:
    """So many topics as a Java broker registers them."""
    topic = {"attributes": {}, "order": False, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0}
    topic |= {"topicFilterType": "SINGLE_TAG", "writeQueueNums": 8}
    names = [f"of-{count}-{number:06}" for number in range(count)]
    wrapper = {
        "dataVersion": {"counter": count, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {name: topic | {"topicName": name} for name in names},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def packed_registration(count: int) -> bytes:
    """The same as brokers with `compressedRegister` send it."""
    texts = ['{"counter":1,"stateVersion":0,"timestamp":1}']
    texts += [f"packed-{number:06} 8 8 6 SINGLE_TAG {{}}" for number in range(count)]
    version, *topics = (struct.pack(">i", len(text)) + text.encode() for text in texts)
    end = struct.pack(">i", 2) + b"[]" + struct.pack(">i", 0)
    return zlib.compress(version + struct.pack(">i", count) + b"".join(topics) + end)


def message(content: bytes) -> bytes:
    """One message of a batch."""
    size = 4 + 4 + 4 + 4 + 4 + len(content) + 2
    return struct.pack(">iiiii", size, 0, 0, 0, len(content)) + content + bytes(2)


def requests() -> Iterator[Greedy]:
    """Every code with every extreme in every field, and with every body."""
    for kind, to_name_server in routed():
        fields = plain(kind)
        name = f"{int(kind.code)} {kind.__name__}{' at the name server' * to_name_server}"
        for field, value in fields.items():
            for one in [LONG_TEXT] if isinstance(value, str) else NUMBERS:
                asked = {**fields, field: one}
                what = f"{name} {field}={str(one)[:12]}"
                yield Greedy(what, to_name_server, int(kind.code), asked, b"")
        for what, body in bodies().items():
            yield Greedy(f"{name} {what}", to_name_server, int(kind.code), fields, body)


def routed() -> Iterator[tuple[type[Header], bool]]:
    """The header of every route, and whether it is asked on the name server's port."""
    broker = Broker(broker_config(Path("never-made")), disk=Disk(), clock=SystemClock())
    for route in broker.routes:
        yield route.header, False
    for route in broker.namesrv.routes:
        yield route.header, True


def plain(kind: type[Header]) -> dict[str, object]:
    """A value for each field, of the kind that it takes."""
    return {
        field.encode_name: 0 if int in _leaves(field.type) else "T"
        for field in msgspec.structs.fields(kind)
        if bool not in _leaves(field.type)
    }


def _leaves(kind: Any) -> set[Any]:
    inner = get_args(kind)
    return {kind} if not inner else set().union(*map(_leaves, inner))


# ── Asking, and who was to blame ──


def ask(broker: WatchedBroker, greedy: Greedy) -> Asked:
    """Ask, and wait until it has been taken; a request that waits on purpose keeps nobody."""
    began = time.monotonic()
    address = broker.namesrv_address if greedy.to_name_server else broker.address
    with RawConnection(address, timeout_s=PATIENCE_S) as client:
        try:
            client.ask(greedy.code, greedy.fields, greedy.body)
            last = client.ask(QUESTION, {"topic": "no such"})
            while client.hear().opaque != last:
                pass
        except Closed:
            pass
    return Asked(greedy, began, time.monotonic())


def greedy_among(
    directory: Path,
    wanted: Iterable[Greedy],
    run: Run | None = None,
    *,
    most_ms: float = STALL_MS,
) -> list[tuple[Greedy, float]]:
    """Those that kept the loop for too long, with the ms, against a broker of their own."""
    broker = WatchedBroker(data=directory / "data")
    asked: list[Asked] = []
    with broker.watched() as gaps:
        for greedy in wanted:
            asked.append(ask(broker, greedy))
            if run is not None:
                run.done()
    found = []
    for gap in gaps:
        if run is not None:
            run.worst("longest turn in ms of CPU", round(gap.cpu_ms))
        if gap.cpu_ms > most_ms:
            began = gap.at_s - gap.late_ms / 1_000
            found += [
                (one.greedy, gap.cpu_ms)
                for one in asked
                if one.began_s <= gap.at_s and one.ended_s >= began
            ]
    return found


def greed(run: Run) -> None:
    """So many requests in an order of chance; all of them before any comes again."""
    everything = list(requests())
    run.rng.shuffle(everything)
    start = run.first % len(everything)
    wanted = islice(_endless(everything, start), max(run.wanted, 1))
    suspects = {greedy.name: greedy for greedy, _ in greedy_among(_place(run, "all"), wanted, run)}
    if not suspects:
        return
    seen = []
    for number in range(REPEATS):
        again = greedy_among(_place(run, f"again-{number}"), suspects.values())
        seen.append({greedy.name: f"{cpu_ms:.0f} ms" for greedy, cpu_ms in again})
    each_time = set.intersection(*map(set, seen))
    assert not each_time, [{name: one[name] for name in each_time} for one in seen]


def _endless(everything: list[Greedy], start: int) -> Iterator[Greedy]:
    while True:
        yield from everything[start:]
        start = 0


def _place(run: Run, name: str) -> Path:
    directory = run.directory / name
    directory.mkdir()
    return directory


G1 = Campaign(
    key="G1",
    title="requests that ask for too much: extreme fields, hostile bodies",
    unit="requests",
    t1=150,
    t2=5_000,
    run=greed,
)
