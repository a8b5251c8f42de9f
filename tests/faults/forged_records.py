"""Whole records of the store inside bodies, and every pointer that a client can give aimed at them.

What is inside a body is a client's. It may be a half, a delayed message, a timer, a check point of
a pop or an ordinary message, with the very place in the log where it lies, a right CRC and a time
of now: nothing of it may be served, committed, delivered, handed back or found, neither at once nor
after a kill, and a stopped directory must hold no record of it.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.remoting.wire.relaxed_json import decode
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import encode as encode_properties
from aerobee.store.format.record import MessageDraft, encode
from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.verify import verify
from tests.faults.fuzz_steps import BROKER_NAME
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.health import events
from tests.kit.raw_client import (
    RawConnection,
    batch_body,
    properties_text,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.reading import read_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kit.campaign import Run
    from tests.kit.raw_client import RawAnswer, RawRecord

MiB = 1_048_576
SEND, SEND_BATCH, QUERY_BY_KEY, VIEW_BY_ID, HAND_BACK, END, RECALL = 310, 320, 12, 33, 36, 37, 370
CREATE_TOPIC, ALL_TOPICS, RUNTIME_INFO, HEART_BEAT = 17, 21, 28, 34
ACK, CHANGE, COMMIT, ROLLBACK, SUCCESS = 200_051, 200_053, 8, 12, 0
CARRIERS, VICTIM, GROUP, PRODUCERS = "carriers", "victim", "victims", "forgers"
QUEUES = 2
MARK = b"FORGED"
"""Begins the body of everything that was never sent."""
HEAD_BYTES = 88
"""Of a record, in front of its body."""
ROUNDS = (2, 4)
"""Carriers with all their pointers, in one life."""
LATER_S = 2.5
"""So much later delays, timers and check points are due for certain."""
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
SETTINGS: dict[str, object] = {
    "brokerName": BROKER_NAME,
    "mappedFileSizeCommitLog": MiB,
    "messageDelayLevel": "1s 2s",
    "recallMessageEnable": True,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "reviveInterval": 200,
    "dedupe": f"{VICTIM}=KEYS@10m",
}


@dataclass(frozen=True, slots=True)
class Forged:
    """A record to be put into a body: where it says that it belongs."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    body: bytes = MARK

    def at(self, physical: int, queue_offset: int, now_ms: int) -> bytes:
        """Its bytes, as the broker would have written them at this place."""
        text = encode_properties(self.properties).encode()
        draft = MessageDraft(self.topic, self.queue_id, self.body, text, HOST, HOST)
        draft.born_timestamp = now_ms
        return encode(draft, queue_offset, physical, now_ms)


def forgeries(rng: random.Random, now_ms: int) -> list[Forged]:
    """One of each kind, some of them where nothing can be delivered."""
    target = rng.choice([VICTIM, VICTIM, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", ""])
    queue = str(rng.choice([0, 1, 99_999_999_999, -1]))
    real = {"REAL_TOPIC": target, "REAL_QID": queue, "UNIQ_KEY": "forged", "KEYS": "forged"}
    half = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "__transactionId__": "forged", **real}
    timer = {"TIMER_OUT_MS": str(now_ms), "TIMER_DELAY_MS": "1", **real}
    point = {
        "t": VICTIM, "c": GROUP, "q": 0, "so": 0, "pt": now_ms - 10, "it": 1, "n": 1, "d": [0],
        "bn": BROKER_NAME, "bm": 0, "ro": 0, "reviveTime": now_ms,
    }  # fmt: skip
    revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
    return [
        Forged("RMQ_SYS_TRANS_HALF_TOPIC", 0, half),
        Forged("RMQ_SYS_TRANS_HALF_TOPIC", 0, {**half, "DELAY": "1"}),
        Forged("SCHEDULE_TOPIC_XXXX", 0, {"DELAY": "1", **real}),
        Forged("rmq_sys_wheel_timer", 0, timer),
        Forged(revive, 0, {"TAGS": "ck", **timer}, MARK + json.dumps(point).encode()),
        Forged(revive, 0, {"TAGS": "ck"}, json.dumps({**point, "c": "FORGED"}).encode()),
        Forged(f"%RETRY%{GROUP}", 0, {"UNIQ_KEY": "forged", "KEYS": "forged"}),
        Forged(VICTIM, 0, {"UNIQ_KEY": "forged", "KEYS": "forged", "TAGS": "forged"}),
        Forged("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, {"TAGS": "d"}, b"0"),
    ]


# ── A life ──


@dataclass(slots=True)
class Attack:
    """One directory and what was sent to it."""

    run: Run
    broker: BrokerProcess
    rng: random.Random
    sent: set[bytes] = field(default_factory=set)
    """Every body of a message that was really sent."""
    number: int = 0

    def life(self) -> None:
        """Carriers, each with every pointer; then wait for what would come by itself."""
        with RawConnection(self.broker.address, timeout_s=30) as connection:
            for topic in (CARRIERS, VICTIM, f"%RETRY%{GROUP}"):
                assert connection.call(CREATE_TOPIC, topic_fields(topic, QUEUES)).code == SUCCESS
            self._honest(connection)
            for _ in range(self.rng.randint(*ROUNDS)):
                self._carrier(connection)
            self.broker.let_run(LATER_S)
            self.look(connection)

    def look(self, connection: RawConnection) -> None:
        """Everything that consumers are given was sent."""
        tables = decode(connection.call(ALL_TOPICS).body)["topicConfigTable"]
        for topic, config in tables.items():
            if topic.startswith(("rmq_sys_", "RMQ_SYS_", "SCHEDULE", "OFFSET_")):
                continue
            for queue_id in range(min(config["readQueueNums"], QUEUES)):
                for record in read_topic(connection, topic, queue_id):
                    assert record.body in self.sent, f"forged: {record}"
                    self.run.counts["messages looked at"] += 1

    def _honest(self, connection: RawConnection) -> None:
        """Real ones of each kind, so that real places are near."""
        for wanted in (
            {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": "honest"},
            {"DELAY": "1"},
            {"TIMER_DELAY_MS": "500"},
            {"KEYS": f"honest-{self.number}"},
        ):
            self.number += 1
            body = b"honest %d" % self.number
            self.sent.add(body)
            fields = send_fields(VICTIM, 0, i=properties_text(**wanted))
            fields |= {"f": 4 if "TRAN_MSG" in wanted else 0, "g": now_ms()}
            assert connection.call(SEND, fields, body).code == SUCCESS

    def _carrier(self, connection: RawConnection) -> None:
        """A body full of records, as a message or as the items of a batch."""
        rng, now = self.rng, now_ms()
        physical = _end_of_log(connection) + HEAD_BYTES
        wanted = forgeries(rng, now)
        rng.shuffle(wanted)
        parts, places = [], []
        at = physical + rng.choice([0, 0, 1, 4_096])
        parts.append(bytes(at - physical))
        for forged in wanted:
            queue_offset = rng.choice([0, 0, 1, 2, 1_000])
            data = forged.at(at, queue_offset, now)
            parts.append(data)
            places.append((forged, at, queue_offset))
            at += len(data)
        body = b"".join(parts) + bytes(rng.choice([0, 0, 100, 200_000]))
        if rng.random() < 0.3:
            batch = {body[:100_000]: "", b"second %d" % self.number + parts[-1]: ""}
            self.sent.update(batch)
            fields = send_fields(CARRIERS, rng.randrange(QUEUES), m=True)
            answer = connection.call(SEND_BATCH, fields, batch_body(batch))
        else:
            self.sent.add(body)
            fields = send_fields(CARRIERS, rng.randrange(QUEUES), g=now)
            if rng.random() < 0.3:
                fields["i"] = properties_text(DELAY="1")
            answer = connection.call(SEND, fields, body)
        assert answer.code == SUCCESS, answer
        exact = int(answer.ext["msgId"].split(",")[0][16:], 16) + HEAD_BYTES == physical
        self.run.counts["carriers"] += 1
        self.run.counts["records at their very place"] += exact * len(places)
        for forged, place, queue_offset in places:
            for shot in _pointers(forged, place, queue_offset, now):
                answer = shot(connection)
                self.run.counts["pointers"] += 1
                found = [record.body for record in _served(answer)]
                assert not any(MARK in one[:6] for one in found), f"served: {forged} {answer}"


def _served(answer: RawAnswer) -> list[RawRecord]:
    """The records in an answer's body, where it has any."""
    return list(records(answer.body)) if answer.code == SUCCESS else []


def now_ms() -> int:
    return int(time.time() * 1_000)


def _end_of_log(connection: RawConnection) -> int:
    """Where the next record will lie, unless its segment is full."""
    answer = connection.call(RUNTIME_INFO)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def _pointers(
    forged: Forged, place: int, queue_offset: int, now: int
) -> Iterator[Callable[[RawConnection], RawAnswer]]:
    """Every request that may name a record by its place or by what it says."""
    half = {"tranStateTableOffset": queue_offset, "commitLogOffset": place, "msgId": "forged"}
    for how in (COMMIT, ROLLBACK):
        for checked in (False, True):
            fields = {"producerGroup": PRODUCERS, "commitOrRollback": how, **half}
            fields |= {"fromTransactionCheck": checked, "transactionId": "forged"}
            yield _call(END, fields)
    for level in (-1, 0, 1):
        fields = {"offset": place, "group": GROUP, "delayLevel": level, "originTopic": forged.topic}
        yield _call(HAND_BACK, fields | {"originMsgId": offset_id(HOST, place)})
    yield _call(VIEW_BY_ID, {"offset": place})
    yield _call(VIEW_BY_ID, {"offset": place, "topic": forged.topic})
    keyed = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    for topic in (forged.topic, VICTIM, CARRIERS):
        for key in ("forged", offset_id(HOST, place)):
            for unique in (False, True):
                fields = {"topic": topic, "key": key, "_UNIQUE_KEY_QUERY": unique, **keyed}
                yield _call(QUERY_BY_KEY, fields)
    handle = f"v1 {VICTIM} {BROKER_NAME} {now + 1_500} forged"
    recall = base64.urlsafe_b64encode(handle.encode()).decode()
    yield _call(RECALL, {"producerGroup": PRODUCERS, "topic": VICTIM, "recallHandle": recall})
    for retry in "012":
        receipt = f"0 {now - 10} 1 0 {retry} {BROKER_NAME} 0 {queue_offset}"
        fields = {"consumerGroup": GROUP, "topic": VICTIM, "queueId": 0, "offset": queue_offset}
        yield _call(CHANGE, {**fields, "extraInfo": receipt, "invisibleTime": 1})
        yield _call(ACK, {**fields, "extraInfo": receipt})


def _call(code: int, fields: dict[str, object]) -> Callable[[RawConnection], RawAnswer]:
    return lambda connection: connection.call(code, fields)


# ── The campaign ──


def forge(run: Run) -> None:
    """Two lives of a directory: carriers and pointers, a kill, the same again, a stop."""
    for cycle in run.cycles():
        flush = cycle.rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        data = run.directory / f"from-{cycle.number}" / "data"
        data.parent.mkdir()
        broker = BrokerProcess(data=data, settings=SETTINGS | {"flushDiskType": flush})
        attack = Attack(run, broker, cycle.rng)
        with broker:
            attack.life()
            broker.kill()
            broker.start()
            attack.life()
            code = broker.stop()
            assert code == 0, broker.child.errors()[-3_000:]
        _check_directory(data)
        wrong = [one for one in events(broker.log.read_text()) if one["level"] == "error"]
        assert not wrong, wrong[:3]
        shutil.rmtree(data.parent)


def _check_directory(data: Path) -> None:
    """Nothing forged is a record of its own, and the directory is sound."""
    found = verify(data)
    assert found.sound, found.damage[:5]
    for message in dump(data, DumpFilter(), Findings()):
        text = message.get("body") or base64.b64decode(message["body_base64"]).decode("latin-1")
        assert not text.startswith(MARK.decode()), f"forged: {message}"
        assert message["queue_id"] < 1_000, f"forged: {message}"


W2 = Campaign(
    key="W2",
    title="whole records in bodies, and every pointer aimed at them",
    unit="directories",
    t1=1,
    t2=100,
    run=forge,
)
