"""What was done to a store directory, and what it must show, while many brokers take turns on it.

A test tells the books what it did, and lets them look after every hand-over. Their laws, beside
those of `History`:

- a message that was read once is the same ever after: bytes, properties, time, place in the log;
- a consumer of a tag is given the messages with that tag, and a key leads to its message;
- topics and groups are as they were made;
- a consumer offset is the last one that was committed, or, after a kill, one that is not older
  than the last one known to be saved;
- a delayed message comes unaltered, not before its time, at least once, and again only after a
  kill that came later than the copies before. Java may bring it early: 4.9.7 forgets the time of
  what it dispatches in a recovery, and every Java broker believes it;
- the last record of a Java broker that was killed may be cut in its properties: nobody was told
  that it is stored, and brokers keep it, for its CRC covers the body only.
"""

import json
import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from aerobee.remoting.wire.relaxed_json import decode
from aerobee.store.format.properties import decode as decode_properties
from tests.kit.history import Attempt, History
from tests.kit.load import SEPARATOR, Shape, stored
from tests.kit.raw_client import (
    RawConnection,
    RawRecord,
    properties_text,
    send_fields,
    topic_fields,
)
from tests.kit.reading import committed_offsets, find_by_key, read_tagged, read_topic
from tests.kit.waiting import eventually

UPDATE_CONSUMER_OFFSET, CREATE_TOPIC, ALL_TOPICS = 15, 17, 21
CREATE_GROUP, ALL_GROUPS, SEND_MESSAGE_V2 = 200, 201, 310
DELAYED = "delayed"
"""The topic of all that is sent for later."""
DELAYS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
"""Some levels of the default table."""
INDEXED_WITHIN_S = 10.0

Queue = tuple[str, int]


@dataclass(slots=True)
class Offset:
    """Of a group in a queue."""

    saved: int = 0
    """A kill does not take it back behind this."""
    committed: int = 0


@dataclass(frozen=True, slots=True)
class Delayed:
    """A message for later, sent and acknowledged."""

    uid: str
    body: bytes
    due_ms: int
    """Not before this time, by the clock of all processes here."""


@dataclass(slots=True)
class Books:
    """All that was done to one directory, and what was seen in it."""

    shape: Shape
    history: History = field(default_factory=lambda: History(pipelined=False))
    """Java's pools of threads may store sends in flight in any order."""
    topics: dict[str, int] = field(default_factory=dict)
    """Name → number of queues."""
    groups: dict[str, int] = field(default_factory=dict)
    """Name → tries before a message is dead."""
    offsets: dict[tuple[str, str, int], Offset] = field(default_factory=dict)
    """By group, topic and queue."""
    delayed: dict[str, Delayed] = field(default_factory=dict)
    kills_ms: list[int] = field(default_factory=list)
    turns_ms: list[tuple[int, bool]] = field(default_factory=list)
    """When a broker was started, and whether it is Java's."""
    queues: dict[Queue, list[RawRecord]] = field(default_factory=dict)
    """Every message as it was read last."""
    torn: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, queue and offset of those whose properties a kill of Java has cut."""
    counts: Counter[str] = field(default_factory=Counter)

    # ── What the test does ──

    def make_topic(self, connection: RawConnection, topic: str, queues: int) -> None:
        """Create it; it must never be missed again."""
        answer = connection.call(CREATE_TOPIC, topic_fields(topic, queues))
        assert answer.code == 0, answer
        self.topics[topic] = queues

    def make_group(self, connection: RawConnection, group: str, tries: int) -> None:
        """Create it; it must never be missed again."""
        body = json.dumps({"groupName": group, "retryMaxTimes": tries}).encode()
        answer = connection.call(CREATE_GROUP, None, body)
        assert answer.code == 0, answer
        self.groups[group] = tries

    def commit(self, connection: RawConnection, group: str, queue: Queue, offset: int) -> None:
        """A consumer of the group has got so far."""
        topic, queue_id = queue
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = connection.call(UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": offset})
        assert answer.code == 0, answer
        self.offsets.setdefault((group, topic, queue_id), Offset()).committed = offset

    def send_later(self, connection: RawConnection, uid: str, queue_id: int, level: int) -> None:
        """Send a message that is to come after the time of its level."""
        body = uid.encode() + SEPARATOR + b"later"
        due_ms = time.time_ns() // 1_000_000 + DELAYS_MS[level]
        text = properties_text(KEYS=uid, TAGS=self.shape.tag(uid), DELAY=str(level))
        answer = connection.call(SEND_MESSAGE_V2, send_fields(DELAYED, queue_id, i=text), body)
        assert answer.code == 0, answer
        self.delayed[uid] = Delayed(uid, body, due_ms)

    def offsets_are_saved(self) -> None:
        """It stopped cleanly, or its file was seen to hold them."""
        for offset in self.offsets.values():
            offset.saved = offset.committed

    def starts(self, *, java: bool) -> None:
        """Somebody takes over now."""
        self.turns_ms.append((time.time_ns() // 1_000_000, java))

    def killed(self) -> None:
        """The broker ended by SIGKILL just now."""
        self.kills_ms.append(time.time_ns() // 1_000_000)

    # ── What must be there ──

    def check(self, connection: RawConnection, tag: str, look_up: Sequence[Attempt]) -> None:
        """Everything, with the messages of one tag and some keys. Raises: AssertionError."""
        self._check_tables(connection)
        self._check_offsets(connection)
        self._check_messages(connection)
        self.check_delayed(connection)
        self._check_tag(connection, tag)
        self._check_keys(connection, look_up)

    def _check_tables(self, connection: RawConnection) -> None:
        topics = decode(connection.call(ALL_TOPICS).body)["topicConfigTable"]
        for topic, queues in self.topics.items():
            found = topics.get(topic)
            assert found is not None, f"lost: topic {topic}"
            counts = (found["readQueueNums"], found["writeQueueNums"], found["perm"])
            assert counts == (queues, queues, 6), f"altered: {found}"
        groups = decode(connection.call(ALL_GROUPS).body)["subscriptionGroupTable"]
        for group, tries in self.groups.items():
            found = groups.get(group)
            assert found is not None, f"lost: group {group}"
            assert found["retryMaxTimes"] == tries, f"altered: {found}"

    def _check_offsets(self, connection: RawConnection) -> None:
        for group, topic in {(group, topic) for group, topic, _ in self.offsets}:
            there = committed_offsets(connection, group, topic, self.topics[topic])
            for queue_id in range(self.topics[topic]):
                known = self.offsets.get((group, topic, queue_id))
                if known is None:
                    continue
                found = there.get(queue_id, 0)
                said = f"{group} in {topic}-{queue_id} is at {found}, not {known}"
                assert known.saved <= found <= known.committed, said
                known.saved = known.committed = found
                self.counts["offsets compared"] += 1

    def _check_messages(self, connection: RawConnection) -> None:
        for topic, queues in self.topics.items():
            for queue_id in range(queues):
                if topic != DELAYED:
                    self._read(connection, (topic, queue_id))
        self.history.check(
            [
                stored(record)
                for (topic, _), records in self.queues.items()
                if topic != DELAYED
                for record in records
            ]
        )

    def _read(self, connection: RawConnection, queue: Queue) -> list[RawRecord]:
        """The queue from its begin, the same as before and more."""
        before = self.queues.get(queue, [])
        records = read_topic(connection, *queue)
        assert records[: len(before)] == before, f"changed since it was read: {queue}"
        offsets = [record.queue_offset for record in records]
        assert offsets == list(range(len(records))), f"not dense: {queue}"
        for record in records[len(before) :]:
            uid = stored(record).uid
            texts = decode_properties(record.properties)
            if (texts.get("KEYS"), texts.get("TAGS")) != (uid, self.shape.tag(uid)):
                attempt = self.history.attempts.get(uid)
                acknowledged = attempt is not None and attempt.acked_at is not None
                assert not acknowledged, f"altered: {record}"
                assert is_torn(record, self.kills_ms, self.turns_ms), f"altered: {record}"
                self.torn.add((*queue, record.queue_offset))
                self.counts["torn by a kill of Java"] += 1
        self.queues[queue] = records
        self.counts["records compared"] += len(before)
        return records

    def check_delayed(self, connection: RawConnection) -> set[str]:
        """What has come is right; the ids of what has not come yet."""
        came: list[RawRecord] = []
        for queue_id in range(self.topics[DELAYED]):
            came += self._read(connection, (DELAYED, queue_id))
        wrong = wrong_deliveries(self.delayed, came, self.kills_ms, self.turns_ms)
        assert not wrong, "\n".join(wrong)
        return self.delayed.keys() - {stored(record).uid for record in came}

    def _check_tag(self, connection: RawConnection, tag: str) -> None:
        for queue, records in self.queues.items():
            tagged = [r for r in records if decode_properties(r.properties).get("TAGS") == tag]
            if queue[0] != DELAYED:
                assert read_tagged(connection, *queue, tag) == tagged, f"{tag} in {queue}"

    def _check_keys(self, connection: RawConnection, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            assert attempt.acked_at is not None
            kept = self.queues[attempt.topic, attempt.queue_id][attempt.acked_at]
            found = eventually(
                partial(find_by_key, connection, attempt.topic, attempt.uid),
                within_s=INDEXED_WITHIN_S,
                what=f"{attempt.uid} at {kept.physical_offset} found by its key",
            )
            if self.turns_ms[-1][1]:
                # In a recovery Java enters the last message of an index file again.
                found = found[:1] + [one for one in found[1:] if one != kept]
            places = [one.physical_offset for one in found]
            assert places == [kept.physical_offset], f"{attempt.uid} leads to {places}"
            assert found == [kept], f"altered: {attempt.uid}"
            self.counts["found by key"] += 1


def wrong_deliveries(
    sent: Mapping[str, Delayed],
    came: Sequence[RawRecord],
    kills_ms: Sequence[int],
    turns_ms: Sequence[tuple[int, bool]],
) -> list[str]:
    """Every delivery that breaks a law of delayed messages, in words."""
    wrong: list[str] = []
    before: dict[str, int] = {}
    for record in sorted(came, key=lambda record: record.physical_offset):
        uid, at_ms = stored(record).uid, record.store_timestamp
        delayed = sent.get(uid)
        if delayed is None:
            wrong.append(f"foreign: {uid!r} was never sent")
            continue
        if record.body != delayed.body:
            wrong.append(f"altered: {uid}")
        if at_ms < delayed.due_ms and not _is_java(turns_ms, at_ms):
            wrong.append(f"early: {uid} by {delayed.due_ms - at_ms} ms")
        earlier_ms = before.get(uid)
        if earlier_ms is not None and not any(earlier_ms <= kill <= at_ms for kill in kills_ms):
            wrong.append(f"doubled: {uid} at {earlier_ms} and at {at_ms}, no kill between")
        before[uid] = at_ms
    return wrong


def is_torn(
    record: RawRecord, kills_ms: Sequence[int], turns_ms: Sequence[tuple[int, bool]]
) -> bool:
    """Whether a Java broker was killed while it wrote the end of this record."""
    at_ms = record.store_timestamp
    turn = bisect_right(turns_ms, at_ms, key=lambda turn: turn[0])
    end_ms = turns_ms[turn][0] if turn < len(turns_ms) else math.inf
    killed = any(at_ms <= kill_ms <= end_ms for kill_ms in kills_ms)
    return killed and _is_java(turns_ms, at_ms) and record.properties.endswith("\0")


def _is_java(turns_ms: Sequence[tuple[int, bool]], at_ms: int) -> bool:
    """Whether a Java broker served then."""
    return [java for start_ms, java in turns_ms if start_ms <= at_ms][-1]
