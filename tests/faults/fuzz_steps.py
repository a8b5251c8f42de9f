"""What a client of the fuzz can do, each step a small function: chance in, one request out.

A step knows what came before (places, receipts, halves, handles) by a `World` and writes down in
its books what it asks for, as it will be sent, and what is granted. All that is random in a step
comes from the step's own number, so steps can be left out and the others stay what they are.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.faults.fuzz_books import Books, Decision, Place, Sent, Way, pairs_of, plainly
from tests.faults.fuzz_peer import Request
from tests.faults.fuzz_values import (
    NUMBERS,
    TEXTS,
    changed_fields,
    changed_json,
    changed_properties,
    extreme,
)
from tests.kit.promises import SEPARATOR
from tests.kit.raw_client import properties_text, pull_fields, records, send_fields, topic_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.faults.fuzz_peer import Peer
    from tests.kit.plain_frames import Plain
    from tests.kit.raw_client import RawRecord

BROKER_NAME = "features"
PLAIN, PARKED, PAID, POPPED, DEDUPED = "plain-a", "parked", "paid", "popped", "deduped"
TOPICS = {PLAIN: 4, "plain-b": 1, PARKED: 2, PAID: 2, POPPED: 2, DEDUPED: 2}
"""Topics of the load, with the number of queues."""
GROUPS = ("g-0", "g-1", "g-2")
STEADY = "steady"
"""A group that nobody changes, so that what is handed back to it must come."""
KEYS = 12
"""Different keys of the topic with a rule of dedupe."""
SUCCESS = 0
HALF_FLAG, COMMIT, ROLLBACK, UNKNOWN = 4, 8, 12, 0
EARLIEST_LATE_MS = 1_000
"""The shortest delay level of all lives."""
REMEMBERED = 60
CHANGED = 0.35
"""How many requests are made extreme."""
TWINS_MS = 60_000
"""Halves that are alike say that they were born in the same minute."""


def now_ms() -> int:
    """As the broker, on the same machine, tells it."""
    return int(time.time() * 1_000)


def remembered() -> Any:
    """What is known of the last ones of a kind."""
    return deque(maxlen=REMEMBERED)


@dataclass(slots=True)
class World:
    """What the clients know. `pops` counts what was handed out."""

    books: Books
    number: int = 0
    places: deque[tuple[str, Place]] = field(default_factory=remembered)
    """Stored messages, by id."""
    halves: deque[tuple[str, dict[str, object]]] = field(default_factory=remembered)
    by_place: dict[str, str] = field(default_factory=dict)
    """commitLogOffset of a half, and of its copies → its id."""
    receipts: deque[dict[str, object]] = field(default_factory=remembered)
    handles: deque[tuple[str, str, str]] = field(default_factory=remembered)
    """Topic, handle, id of timers."""
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, more: int = 1) -> None:
        """For the report."""
        self.counts[name] = self.counts.get(name, 0) + more

    def body(self, rng: random.Random) -> tuple[str, bytes]:
        """The next id, and a body that begins with it."""
        self.number += 1
        uid = f"m.{self.number}"
        size = rng.choice([0, 1, 20, 300, 300, 2_000, 9_000, 30_000])
        return uid, uid.encode() + SEPARATOR + rng.randbytes(rng.randrange(size + 1))


# ── Sending ──


def send(world: World, rng: random.Random, peer: Peer) -> Request:
    topic = rng.choice([PLAIN, PLAIN, "plain-b", POPPED, DEDUPED, DEDUPED])
    text = properties_text(KEYS=f"key-{rng.randrange(KEYS)}", TAGS=rng.choice("ABC"), a="1")
    return _send(world, rng, topic, text, short=rng.random() < 0.8)


def send_later(world: World, rng: random.Random, peer: Peer) -> Request:
    kind, began_ms = rng.randrange(4), now_ms()
    if kind == 0:
        text = properties_text(DELAY=str(rng.randrange(1, 4)))
        return _send(world, rng, PARKED, text, due_ms=began_ms + EARLIEST_LATE_MS)
    wait_ms = rng.choice([1, 500, 1_500, 2_500])
    if kind == 1:
        wanted = {"TIMER_DELAY_MS": str(wait_ms)}
    elif kind == 2:
        wait_ms = 1_000 * rng.randrange(1, 3)
        wanted = {"TIMER_DELAY_SEC": str(wait_ms // 1_000)}
    else:
        wanted = {"TIMER_DELIVER_MS": str(began_ms + wait_ms)}
    return _send(world, rng, PARKED, properties_text(**wanted), due_ms=began_ms + wait_ms)


def send_half(world: World, rng: random.Random, peer: Peer) -> Request:
    world.number += 1
    wanted = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": f"half.{world.number}"}
    if rng.random() < 0.1:
        wanted["CHECK_IMMUNITY_TIME_IN_SECONDS"] = extreme(rng)
    born_ms = now_ms()
    if rng.random() < 0.3:
        # Alike in all that a producer says of them.
        wanted["UNIQ_KEY"] = "half.same"
        born_ms -= born_ms % TWINS_MS
    elif rng.random() < 0.1:
        # Given up with the first check.
        born_ms = 1_000_000_000_000
    return _send(world, rng, PAID, properties_text(**wanted), half=True, born_ms=born_ms)


def _send(
    world: World,
    rng: random.Random,
    topic: str,
    text: str,
    *,
    short: bool = True,
    due_ms: int = 0,
    half: bool = False,
    born_ms: int | None = None,
) -> Request:
    uid, body = world.body(rng)
    asked = text
    if rng.random() < 0.2:
        text = changed_properties(rng, text)
    fields = send_fields(topic, rng.randrange(TOPICS[topic]), i=text, a="payers" if half else "p")
    fields |= {"f": HALF_FLAG if half else 0, "g": now_ms() if born_ms is None else born_ms}
    born = fields["g"]

    def leaves(request: Request) -> None:
        topic_now, text_now = request.fields.get("b"), request.fields.get("i", "")
        honest = text_now == asked and topic_now == topic and request.fields.get("g") == born
        way = _way(topic_now, text_now, honest=honest)
        known = text_now if isinstance(text_now, str) else ""
        message = Sent(
            uid=uid,
            body=request.body,
            topic=str(topic_now),
            way=way,
            life=world.books.kills,
            properties=known if way is Way.AT_ONCE else "",
            due_ms=due_ms,
        )
        if topic_now == DEDUPED:
            message.keys = _keys_of(known, sure=way is Way.AT_ONCE)
        world.books.tried(message)
        if not short:
            request.fields = {
                V1[name]: value for name, value in request.fields.items() if name in V1
            }

    def heard(request: Request, answer: Plain) -> None:
        if answer.code != SUCCESS:
            world.count(f"sends refused with {answer.code}")
            return
        world.count("acknowledged")
        _stored(world, world.books.sent[uid], answer)

    return Request(code=310 if short else 10, fields=fields, body=body, leaves=leaves, heard=heard)


V1 = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
"""The short names of a send and the long ones."""


def _way(topic: object, text: object, *, honest: bool) -> Way:
    if plainly(topic, text):
        return Way.AT_ONCE
    assert isinstance(text, str) or not honest
    if not honest or not isinstance(text, str) or text.count("\x02") > 4:
        return Way.ANYHOW
    names = [part.partition("\x01")[0] for part in text.split("\x02")]
    hooks = [name for name in names if name in HOOKS]
    if len(hooks) != 1 or len(set(names)) < len(names):
        return Way.ANYHOW
    return Way.HALF if hooks == ["TRAN_MSG"] else Way.LATER


HOOKS = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG")


def _keys_of(text: str, *, sure: bool = True) -> frozenset[str]:
    """What the key of a message may be; empty and one more where it is a matter of opinion."""
    keys = {part[5:] for part in text.split("\x02") if part.startswith("KEYS\x01")}
    once = len(keys) <= 1 and text.count("KEYS") == len(keys)
    sure = sure and once and pairs_of(text) is not None
    return frozenset(keys if sure else keys | {"", "?"})


def _stored(world: World, message: Sent, answer: Plain) -> None:
    message.granted = True
    if message.way is Way.AT_ONCE:
        physical = int(answer.ext["msgId"].split(",")[0][16:], 16)
        queue = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
        message.place = Place(message.topic, *queue, physical)
        world.places.append((message.uid, message.place))
    elif message.way is Way.HALF:
        physical = int(answer.ext["msgId"][16:], 16)
        half = {"commitLogOffset": physical, "tranStateTableOffset": answer.ext["queueOffset"]}
        world.halves.append((message.uid, half | {"msgId": answer.ext["transactionId"]}))
        world.by_place[str(physical)] = message.uid
    if handle := answer.ext.get("recallHandle"):
        world.handles.append((message.topic, handle, message.uid))


def send_batch(world: World, rng: random.Random, peer: Peer) -> Request:
    topic = rng.choice([PLAIN, "plain-b", DEDUPED])
    count = rng.choice([1, 2, 5, 5, 40])
    items = []
    for _ in range(count):
        uid, body = world.body(rng)
        text = properties_text(KEYS=f"key-{rng.randrange(KEYS)}").encode()
        if rng.random() < 0.4:
            text = rng.choice(ENDINGS)(text)
        items.append((uid, body[:2_000], text))
    damaged = rng.random() < 0.15
    data = b"".join(_item(body, text) for _, body, text in items)
    if damaged:
        data = _damaged(rng, data)

    def leaves(request: Request) -> None:
        topic_now = request.fields.get("b")
        if damaged:
            world.books.loose.append(data)
            return
        hooked = any(word in text for _, _, text in items for word in (b"DELAY", b"TIMER", b"TRAN"))
        loose = hooked or not plainly(topic_now, request.fields.get("i", ""))
        for uid, body, text in items:
            readable = text.isascii() and not loose
            message = Sent(
                uid=uid,
                body=body,
                topic=str(topic_now),
                way=Way.ANYHOW if loose else Way.AT_ONCE,
                life=world.books.kills,
                properties=text.decode() if readable else "",
            )
            if topic_now == DEDUPED:
                message.keys = _keys_of(text.decode("utf-8", "replace"))
            world.books.tried(message)

    def heard(request: Request, answer: Plain) -> None:
        if answer.code != SUCCESS:
            world.count(f"batches refused with {answer.code}")
            return
        if damaged:
            world.count("damaged batches taken")
            return
        world.count("acknowledged", len(items))
        ids = answer.ext["msgId"].split(",")
        assert len(ids) == len(items), f"{len(ids)} ids for {len(items)} messages"
        first = int(answer.ext["queueOffset"])
        for at, ((uid, _, _), name) in enumerate(zip(items, ids, strict=True)):
            message = world.books.sent[uid]
            message.granted = True
            if message.way is Way.AT_ONCE and message.topic != DEDUPED:
                place = message.topic, int(answer.ext["queueId"]), first + at
                message.place = Place(*place, int(name[16:], 16))
                world.places.append((uid, message.place))

    fields = send_fields(topic, rng.randrange(TOPICS[topic]), m=True)
    return Request(code=320, fields=fields, body=data, leaves=leaves, heard=heard)


ENDINGS: tuple[Callable[[bytes], bytes], ...] = (
    lambda text: text[:-1],
    lambda text: text + b"z\x01\0",
    lambda text: text + b"z\x01v\0",
    lambda text: text + b"z\x01\xff\xff",
    lambda text: text + b"z\x01\xff\x02",
    lambda text: text + b"z\x01\xed\xa0\x80",
    lambda text: b"",
    lambda text: text + b"\0" * 40,
    lambda text: text + b"\x02\x02\x02",
    lambda text: text + b"UNIQ_KEY\x01\0\x02",
    lambda text: text + b"z\x01" + b"v" * 30_000,
)
"""What properties in a batch may end with, where no text limits them."""


def _item(body: bytes, properties: bytes) -> bytes:
    tail = struct.pack(">I", len(body)) + body + struct.pack(">H", len(properties)) + properties
    return struct.pack(">IIII", 16 + len(tail), 0, 0, 0) + tail


def _damaged(rng: random.Random, data: bytes) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 30))
    if kind == 2:
        return struct.pack(">IIII", 22, 0, 0, 0) * 3_000
    at = rng.randrange(max(1, len(data) - 4))
    wild = struct.pack(">I", rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
    return data[:at] + wild + data[at + 4 :]


def reply(world: World, rng: random.Random, peer: Peer) -> Request:
    uid, body = world.body(rng)
    text = properties_text(CORRELATION_ID=uid, REPLY_TO_CLIENT="c-0", CLUSTER="DefaultCluster")
    topic = "DefaultCluster_REPLY_TOPIC"
    request = Request(code=325, fields=send_fields(topic, 0, i=text), body=body)

    def leaves(request: Request) -> None:
        topic_now = str(request.fields.get("b"))
        way = Way.ANYHOW
        sent = Sent(uid=uid, body=body, topic=topic_now, way=way, life=world.books.kills)
        world.books.tried(sent)

    request.leaves = leaves
    return request


# ── Transactions ──


def end_half(world: World, rng: random.Random, peer: Peer) -> Request | None:
    """END_TRANSACTION, by the producer itself or because it was asked."""
    peer.look()
    checks = [one for one in peer.asked if one.code == 39]
    world.count("requests of the broker", len(peer.asked))
    peer.asked.clear()
    if checks:
        half: dict[str, object] = dict(checks[-1].ext)
        for check in checks:
            body = next(iter(records(check.body))).body
            uid = body.partition(SEPARATOR)[0].decode()
            world.by_place[check.ext["commitLogOffset"]] = uid
        half = {name: half[name] for name in ("commitLogOffset", "tranStateTableOffset", "msgId")}
        half["fromTransactionCheck"] = True
    elif world.halves:
        half = dict(rng.choice(world.halves)[1])
    else:
        return None
    how = rng.choice([COMMIT, COMMIT, ROLLBACK, UNKNOWN])
    fields = {"producerGroup": "payers", "commitOrRollback": how, **half}
    honest = dict(fields)

    def leaves(request: Request) -> None:
        message = _named_half(world, request)
        if message is None:
            return
        wanted = {COMMIT: Decision.COMMIT, ROLLBACK: Decision.ROLLBACK}.get(how)
        if request.fields != honest:
            message.asked = message.decided = Decision.UNSURE
        elif wanted is not None and message.asked is not wanted:
            message.asked = wanted if message.asked is None else Decision.UNSURE
            if message.asked is Decision.UNSURE:
                message.decided = Decision.UNSURE

    def heard(request: Request, answer: Plain) -> None:
        message = _named_half(world, request)
        if message is None or answer.code != SUCCESS:
            return
        world.count("transactions ended")
        if message.asked in (Decision.COMMIT, Decision.ROLLBACK) and message.decided is None:
            message.decided = message.asked

    return Request(
        code=37, fields=fields, leaves=leaves, heard=heard, silent=True, oneway=rng.random() < 0.3
    )


def _named_half(world: World, request: Request) -> Sent | None:
    uid = world.by_place.get(str(request.fields.get("commitLogOffset")))
    return None if uid is None else world.books.sent.get(uid)


def recall(world: World, rng: random.Random, peer: Peer) -> Request | None:
    if not world.handles:
        return None
    topic, handle, uid = rng.choice(world.handles)
    if rng.random() < 0.3:
        words = base64.urlsafe_b64decode(handle).decode().split(" ")
        words[rng.randrange(len(words))] = extreme(rng).replace(" ", "_")[:200]
        raw = " ".join(words).encode("utf-8", "replace")
        handle = base64.urlsafe_b64encode(raw).decode()
        # The key may be that of any timer now.
        if (found := world.books.sent.get(words[-1])) is not None:
            found.recalled = True

    def leaves(request: Request) -> None:
        world.books.sent[uid].recalled = True

    fields: dict[str, object] = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
    return Request(code=370, fields=fields, leaves=leaves)


def hand_back(world: World, rng: random.Random, peer: Peer) -> Request | None:
    if not world.places:
        return None
    uid, place = rng.choice(world.places)
    group = rng.choice([STEADY, *GROUPS])
    level = rng.choice([0, 1, 2])
    fields = {"offset": place.physical, "group": group, "delayLevel": level, "originMsgId": uid}
    honest = dict(fields)

    def heard(request: Request, answer: Plain) -> None:
        known = group == STEADY and place.topic != DEDUPED
        if answer.code == SUCCESS and request.fields == honest and known:
            world.count("hand-backs")
            world.books.back[group, uid] += 1

    return Request(code=36, fields=fields, heard=heard)


# ── Reading ──


def pull(world: World, rng: random.Random, peer: Peer) -> Request:
    topic = rng.choice(list(TOPICS))
    held = rng.random() < 0.3
    group = rng.choice(GROUPS)
    fields = pull_fields(group, topic, rng.randrange(TOPICS[topic]), rng.choice([0, 0, 5, 1_000]))
    fields["maxMsgNums"] = rng.choice([1, 32, 32, *NUMBERS])
    fields["sysFlag"] = 4 | (2 if held else 0) | rng.choice([0, 0, 1, 8])
    fields["suspendTimeoutMillis"] = rng.choice([10, 300, 1_000])
    kind = rng.random()
    if kind < 0.3:
        fields["subscription"] = rng.choice(["A", "A||B", "C", "zzz", *TEXTS])
    elif kind < 0.5:
        fields["expressionType"] = "SQL92"
        fields["subscription"] = rng.choice(["a > 0", "a = '1' OR b IS NULL", *TEXTS])
    if rng.random() < 0.1:
        fields["sysFlag"] = rng.choice([0, 2, *NUMBERS])
    return Request(code=rng.choice([11, 11, 361]), fields=fields, silent=True)


def pop(world: World, rng: random.Random, peer: Peer) -> Request:
    group = rng.choice(GROUPS)
    fields: dict[str, object] = {
        "consumerGroup": group,
        "topic": POPPED,
        "queueId": rng.choice([-1, -1, 0, 1]),
        "maxMsgNums": rng.choice([1, 8, 32, *NUMBERS]),
        "invisibleTime": rng.choice([1, 500, 1_500, 60_000]),
        "pollTime": rng.choice([0, 0, 300]),
        "bornTime": now_ms(),
        "initMode": rng.choice([0, 0, 1]),
        "order": rng.random() < 0.3,
    }
    if rng.random() < 0.3:
        fields["attemptId"] = extreme(rng)
    if rng.random() < 0.2:
        fields |= {"expType": rng.choice(["TAG", "SQL92", "x"]), "exp": rng.choice(["A", *TEXTS])}

    def heard(request: Request, answer: Plain) -> None:
        if answer.code != SUCCESS:
            return
        for record in records(answer.body):
            world.count("popped")
            told = _receipt(answer.ext, record)
            if told is not None:
                world.receipts.append({"consumerGroup": group, **told})

    return Request(code=200_050, fields=fields, heard=heard, silent=True)


def _receipt(told: Mapping[str, str], record: RawRecord) -> dict[str, object] | None:
    """The fields of an acknowledgement. Source: semantics §11.1."""
    pairs = dict(
        pair.split("\x01", 1) for pair in record.properties.split("\x02") if "\x01" in pair
    )
    handle = pairs.get("POP_CK")
    if handle is None:
        entries = [entry.split(" ") for entry in told.get("startOffsetInfo", "").split(";")]
        starts = {entry[1]: entry[2] for entry in entries if len(entry) == 3 and entry[0] == "0"}
        start = starts.get(str(record.queue_id))
        if start is None:
            return None
        words = told["popTime"], told["invisibleTime"], told["reviveQid"], "0", BROKER_NAME
        handle = " ".join([start, *words, str(record.queue_id), str(record.queue_offset)])
    place = {"topic": record.topic, "queueId": record.queue_id, "offset": record.queue_offset}
    return {"extraInfo": handle, **place}


def acknowledge(world: World, rng: random.Random, peer: Peer) -> Request | None:
    if not world.receipts:
        return None
    fields = _odd_receipt(rng, rng.choice(world.receipts))
    return Request(code=200_051, fields=fields)


def _odd_receipt(rng: random.Random, receipt: Mapping[str, object]) -> dict[str, object]:
    """Sometimes one that no pop has made."""
    fields = dict(receipt)
    if rng.random() < 0.3:
        words = str(fields["extraInfo"]).split(" ")
        words[rng.randrange(len(words))] = str(rng.choice([*NUMBERS, now_ms(), "x", ""]))
        fields["extraInfo"] = " ".join(words)
    return fields


def acknowledge_many(world: World, rng: random.Random, peer: Peer) -> Request | None:
    if not world.receipts:
        return None
    acks = []
    for _ in range(rng.choice([1, 3])):
        known = _odd_receipt(rng, rng.choice(world.receipts))
        words = str(known["extraInfo"]).split(" ")
        if len(words) == 8:
            bits = base64.b64encode(rng.choice([b"\1", b"\xff", b"\xff" * 64])).decode()
            names = {"so": 0, "pt": 1, "it": 2, "rq": 3, "q": 6}
            numbers = {name: _number(words[at]) for name, at in names.items()}
            which = {"c": known["consumerGroup"], "t": POPPED, "r": words[4], "b": bits}
            acks.append(which | numbers)
    document = {"brokerName": BROKER_NAME, "acks": acks}
    return Request(code=200_151, body=_json_body(rng, document))


def _number(text: str) -> object:
    return int(text) if text.lstrip("-").isdigit() else text


def change_invisible(world: World, rng: random.Random, peer: Peer) -> Request | None:
    if not world.receipts:
        return None
    fields = _odd_receipt(rng, rng.choice(world.receipts))
    fields["invisibleTime"] = rng.choice([1, 500, 1_500, 60_000, *NUMBERS])

    def heard(request: Request, answer: Plain) -> None:
        if answer.code == SUCCESS:
            words = str(request.fields["extraInfo"]).split(" ")
            told = answer.ext["popTime"], answer.ext["invisibleTime"], answer.ext["reviveQid"]
            words[1:4] = told
            known = request.fields
            words[0] = str(known["offset"])
            world.receipts.append({**known, "extraInfo": " ".join(words)})

    return Request(code=200_053, fields=fields, heard=heard)


def notification(world: World, rng: random.Random, peer: Peer) -> Request:
    wait = {"pollTime": rng.choice([0, 100, 500]), "bornTime": now_ms()}
    fields = {"consumerGroup": rng.choice(GROUPS), "topic": POPPED, "queueId": rng.choice([-1, 0])}
    return Request(code=200_054, fields=fields | wait, silent=True)


# ── Clients, groups, topics, offsets ──


def heartbeat(world: World, rng: random.Random, peer: Peer) -> Request:
    subscriptions = [
        {
            "topic": rng.choice([*TOPICS, *TEXTS]) if rng.random() < 0.2 else rng.choice([*TOPICS]),
            "subString": rng.choice(["*", "A", "A||B", "a > 0", *TEXTS]),
            "expressionType": rng.choice(["TAG", "TAG", "SQL92"]),
            "tagsSet": [rng.choice("AB")] * rng.choice([0, 1, 300]),
            "codeSet": [65] * rng.choice([0, 1]),
            "subVersion": rng.choice([0, now_ms(), *NUMBERS]),
        }
        for _ in range(rng.choice([0, 1, 3]))
    ]
    consumer = {
        "groupName": rng.choice(GROUPS),
        "consumeType": rng.choice(["CONSUME_PASSIVELY", "CONSUME_ACTIVELY"]),
        "messageModel": rng.choice(["CLUSTERING", "BROADCASTING"]),
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    document = {
        "clientID": f"c-{rng.randrange(3)}",
        "producerDataSet": [{"groupName": "payers"}],
        "consumerDataSet": [consumer] * rng.choice([0, 1, 1, 2]),
        "heartbeatFingerprint": rng.choice([0, 0, 1, -1]),
        "withoutSub": rng.random() < 0.1,
    }
    return Request(code=34, body=_json_body(rng, document))


def _json_body(rng: random.Random, document: Any) -> bytes:
    if rng.random() < CHANGED:
        return changed_json(rng, document)
    return json.dumps(document).encode()


def unregister(world: World, rng: random.Random, peer: Peer) -> Request:
    groups = {"producerGroup": "payers", "consumerGroup": rng.choice(GROUPS)}
    return Request(code=35, fields={"clientID": "c-0", **groups})


def lock(world: World, rng: random.Random, peer: Peer) -> Request:
    queues = [
        {"brokerName": BROKER_NAME, "topic": PLAIN, "queueId": number}
        for number in range(rng.choice([0, 1, 4]))
    ]
    who = {"clientId": f"c-{rng.randrange(3)}", "consumerGroup": rng.choice(GROUPS)}
    document = {**who, "mqSet": queues, "onlyThisBroker": True}
    return Request(code=rng.choice([41, 42]), body=_json_body(rng, document))


def check_client(world: World, rng: random.Random, peer: Peer) -> Request:
    subscription = {"topic": PLAIN, "subString": rng.choice(TEXTS), "expressionType": "SQL92"}
    document = {"clientId": "c-0", "group": "g-0", "subscriptionData": subscription}
    return Request(code=46, body=_json_body(rng, document))


def make_topic(world: World, rng: random.Random, peer: Peer) -> Request:
    name = rng.choice(["made-0", "made-1", "made-2", "x" * 127, "%RETRY%g-0", "TBW102"])
    fields = topic_fields(name, rng.choice([1, 1, 4]))
    if rng.random() < 0.3:
        fields["attributes"] = rng.choice(
            ["+message.type=DELAY", "+cleanup.policy=COMPACTION", "-queue.type", *TEXTS]
        )

    def heard(request: Request, answer: Plain) -> None:
        made = request.fields.get("topic")
        if answer.code == SUCCESS and isinstance(made, str):
            world.count("topics made")
            world.books.made.add(made)

    return Request(code=17, fields=fields, heard=heard)


def make_group(world: World, rng: random.Random, peer: Peer) -> Request:
    document = {
        "groupName": rng.choice(GROUPS),
        "consumeEnable": rng.random() < 0.9,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": rng.random() < 0.2,
        "retryQueueNums": rng.choice([1, 1, 0, 4]),
        "retryMaxTimes": rng.choice([16, 16, 0, 1]),
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "attributes": {},
    }
    return Request(code=200, body=_json_body(rng, document))


def offsets(world: World, rng: random.Random, peer: Peer) -> Request:
    topic = rng.choice(list(TOPICS))
    group = rng.choice([*GROUPS, "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"])
    if group.startswith("CID") and rng.random() < 0.7:
        topic = rng.choice(
            [
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                "rmq_sys_REVIVE_LOG_DefaultCluster",
            ]
        )
    where: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    if rng.random() < 0.5:
        return Request(code=14, fields={**where, "setZeroIfNotFound": rng.random() < 0.5})
    return Request(code=15, fields={**where, "commitOffset": rng.choice([0, 3, *NUMBERS])})


def reset(world: World, rng: random.Random, peer: Peer) -> Request:
    how = {"timestamp": rng.choice([0, -1, now_ms(), *NUMBERS]), "isForce": rng.random() < 0.5}
    fields = {"topic": rng.choice(list(TOPICS)), "group": rng.choice([*GROUPS, "nobody"]), **how}
    if rng.random() < 0.5:
        fields |= {"queueId": rng.choice([-1, 0]), "offset": rng.choice([-1, 0, *NUMBERS])}
    return Request(code=222, fields=fields)


def ask_about(world: World, rng: random.Random, peer: Peer) -> Request:
    """Questions of administrators and of consumers."""
    topic, group = rng.choice(list(TOPICS)), rng.choice(GROUPS)
    queue = {"topic": topic, "queueId": 0}
    place = rng.choice(world.places)[1].physical if world.places else 0
    asked: tuple[tuple[int, dict[str, object]], ...] = (
        (12, {"topic": topic, "key": f"key-{rng.randrange(KEYS)}", "maxNum": rng.choice(NUMBERS),
              "beginTimestamp": rng.choice([0, *NUMBERS]),
              "endTimestamp": rng.choice([now_ms(), *NUMBERS])}),
        (33, {"offset": rng.choice([place, place + 1, *NUMBERS])}),
        (29, {**queue, "timestamp": rng.choice([0, now_ms(), *NUMBERS])}),
        (30, queue), (31, queue), (32, queue), (45, {}), (21, {}), (26, {}), (28, {}),
        (21, {"topicSeq": rng.choice(NUMBERS), "maxTopicNum": rng.choice(NUMBERS)}),
        (201, {"groupSeq": rng.choice(NUMBERS), "maxGroupNum": rng.choice(NUMBERS)}),
        (351, {"topic": topic}), (352, {"group": group}), (201, {}), (202, {"topic": topic}),
        (203, {"consumerGroup": group}), (204, {"producerGroup": "payers"}),
        (208, {"consumerGroup": group, "topic": topic}),
        (208, {"consumerGroup": group, "topicList": f"{topic};" * rng.choice([1, 50, 2_000])}),
        (300, {"topic": topic}), (343, {"group": group}), (38, {"consumerGroup": group}),
        (315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic}), (316, {}), (329, {}), (306, {}),
        (200_055, {**queue, "consumerGroup": group}),
        (200_052, {**queue, "consumerGroup": group, "maxMsgNums": rng.choice(NUMBERS)}),
        (207, {"groupName": rng.choice(["g-2", "nobody"]), "cleanOffset": rng.random() < 0.5}),
        (rng.choice([4, 25, 215, 307, -1, 9_999, 32_767]), {}),
    )  # fmt: skip
    code, fields = rng.choice(asked)
    return Request(code=code, fields=dict(fields))


def assign(world: World, rng: random.Random, peer: Peer) -> Request:
    who = {"topic": rng.choice(list(TOPICS)), "consumerGroup": rng.choice(GROUPS)}
    if rng.random() < 0.3:
        share = {"mode": rng.choice(["PULL", "POP"]), "popShareQueueNum": rng.choice(NUMBERS)}
        return Request(code=401, body=_json_body(rng, {**who, **share}))
    how = {"clientId": "c-0", "strategyName": rng.choice(["AVG", "CIRCLE", "x"])}
    return Request(code=400, body=_json_body(rng, {**who, **how, "messageModel": "CLUSTERING"}))


def register(world: World, rng: random.Random, peer: Peer) -> Request:
    """REGISTER_BROKER of a broker that is nowhere, and questions to the name server."""
    if rng.random() < 0.4:
        asked: tuple[tuple[int, dict[str, object]], ...] = (
            (105, {"topic": rng.choice([*TOPICS, "foreign"])}), (106, {}), (206, {}), (304, {}),
            (224, {"cluster": rng.choice(["DefaultCluster", "elsewhere"])}),
            (216, {"topic": "foreign"}), (205, {"brokerName": "elsewhere"}),
            (327, {"brokerName": "elsewhere"}), (322, {"brokerName": "elsewhere"}),
            (100, {"namespace": extreme(rng), "key": extreme(rng), "value": extreme(rng)}),
            (101, {"namespace": "n", "key": "k"}), (102, {"namespace": "n", "key": "k"}),
            (219, {"namespace": "ORDER_TOPIC_CONFIG"}),
            (104, {"brokerName": "elsewhere", "clusterName": "elsewhere", "brokerId": 0,
                   "brokerAddr": "127.0.0.1:9"}),
        )  # fmt: skip
        code, fields = rng.choice(asked)
        return Request(code=code, fields=dict(fields))
    queues = rng.choice([1, 8, *NUMBERS])
    config = {
        "topicName": "foreign",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    version = {"timestamp": now_ms(), "counter": 1}
    tables = {"dataVersion": version, "topicConfigTable": {"foreign": config}}
    document = {"topicConfigSerializeWrapper": tables, "filterServerList": []}
    fields = {
        "brokerName": "elsewhere",
        "brokerAddr": f"127.0.0.1:{rng.choice([9, 10, 70_000])}",
        "clusterName": "elsewhere",
        "haServerAddr": "127.0.0.1:10",
        "brokerId": rng.choice([0, 1]),
        "heartbeatTimeoutMillis": rng.choice([1_000, 10_000, *NUMBERS]),
    }
    return Request(code=103, fields=fields, body=_json_body(rng, document))


STEPS: dict[str, tuple[int, Any]] = {
    "send": (14, send),
    "send later": (6, send_later),
    "send half": (6, send_half),
    "send batch": (6, send_batch),
    "reply": (2, reply),
    "end half": (8, end_half),
    "recall": (2, recall),
    "hand back": (4, hand_back),
    "pull": (6, pull),
    "pop": (6, pop),
    "acknowledge": (4, acknowledge),
    "acknowledge many": (2, acknowledge_many),
    "change invisible": (3, change_invisible),
    "notification": (2, notification),
    "heartbeat": (5, heartbeat),
    "unregister": (1, unregister),
    "lock": (2, lock),
    "check client": (1, check_client),
    "make topic": (2, make_topic),
    "make group": (2, make_group),
    "offsets": (3, offsets),
    "reset": (2, reset),
    "ask about": (8, ask_about),
    "assign": (2, assign),
    "register": (3, register),
}
"""Name → how often, and the step."""


def request_of(name: str, world: World, rng: random.Random, peer: Peer) -> Request | None:
    """The request of one step, extreme or not; None when there is nothing to do it with."""
    request: Request | None = STEPS[name][1](world, rng, peer)
    if request is None:
        return None
    if rng.random() < CHANGED and request.fields:
        before = dict(request.fields)
        request.fields = changed_fields(rng, before)
        request.changed = request.fields != before
    if rng.random() < 0.05:
        request.oneway = True
    return request
