"""Clients of what is more than sending and pulling: each does one small step after the other.

They write down what they ask for, what is granted and what they get, over all lives of a broker.
When they are `closing` they begin nothing new and finish what they began.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.kit.history import TransactionHistory
from tests.kit.promises import SEPARATOR, Commits, Pops, Waits, uid_of
from tests.kit.raw_client import properties_text, pull_fields, records, send_fields
from tests.kit.reading import committed_offsets, max_offset
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping

    from tests.kit.promises import Delivery
    from tests.kit.raw_client import RawAnswer, RawConnection, RawRecord

PULL_MESSAGE, UPDATE_CONSUMER_OFFSET, SEND_MESSAGE_V2 = 11, 15, 310
HEART_BEAT, CONSUMER_SEND_MSG_BACK, END_TRANSACTION, CHECK_TRANSACTION_STATE = 34, 36, 37, 39
POP_MESSAGE, ACK_MESSAGE = 200_050, 200_051
SUCCESS, SERVICE_NOT_AVAILABLE, NO_MESSAGE, POLLING_TIMEOUT = 0, 14, 208, 210
HALF_FLAG, UNKNOWN, COMMIT, ROLLBACK = 4, 0, 8, 12

BROKER_NAME = "features"
PARKED, PAID = "parked", "paid"
GROUP = "readers"
RETRY = f"%RETRY%{GROUP}"
QUEUES = 2
LEVELS_MS = (1_000, 2_000)
TIMER_MS = (500, 2_000)
INVISIBLE_MS = (1_000, 1_500)
AT_ONCE = 8
SEGMENT_WITHIN_S = 30.0
"""The next segment of the log is made so soon, even on a busy machine."""
SAVING_S = 2.0
"""What is to be saved is saved so much later at most, even on a busy machine."""


def now_ms() -> int:
    """As the broker, on the same machine, tells it."""
    return int(time.time() * 1_000)


class Client:
    """One of them. `counts`: what it did."""

    name = "client"

    def __init__(self) -> None:
        self.closing = False
        self.killed_at = 0.0
        """Of the monotonic clock."""
        self.disk_fills = False
        """Whether the clean-up may delete what waits, for want of room."""
        self.counts: Counter[str] = Counter()
        self._number = 0

    def begin_life(self, life: int) -> None:
        """The broker was killed and is up again."""

    def connected(self, connection: RawConnection) -> None:
        """The first words of a connection."""

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        """Something small. Raises: Closed."""
        raise NotImplementedError

    def body(self, rng: random.Random) -> tuple[str, bytes]:
        """The next id, and a body that begins with it."""
        self._number += 1
        uid = f"{self.name}.{self._number}"
        return uid, uid.encode() + SEPARATOR + rng.randbytes(rng.randrange(500))


def call(
    connection: RawConnection,
    code: int,
    fields: Mapping[str, object],
    body: bytes = b"",
    *,
    granted: Collection[int] = (SUCCESS,),
) -> RawAnswer:
    """What must be granted, if not at once: a segment may be late, and then nothing was stored."""
    answer = connection.call(code, fields, body)
    if answer.code == SERVICE_NOT_AVAILABLE:

        def is_taken() -> bool:
            nonlocal answer
            answer = connection.call(code, fields, body)
            return answer.code != SERVICE_NOT_AVAILABLE

        eventually(is_taken, within_s=SEGMENT_WITHIN_S, what=f"{code} is served: {answer.remark}")
    assert answer.code in granted, f"{code} with {fields}: {answer.code} {answer.remark}"
    return answer


class Parker(Client):
    """Sends what is to come later, by levels and by timers."""

    name = "park"

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        if self.closing:
            return
        uid, body = self.body(rng)
        if rng.random() < 0.5:
            level = rng.randrange(len(LEVELS_MS))
            wait_ms, kind, properties = LEVELS_MS[level], "delays", {"DELAY": str(level + 1)}
        else:
            wait_ms = rng.randint(*TIMER_MS)
            kind, properties = "timers", {"TIMER_DELAY_MS": str(wait_ms)}
        wait = self.waits.tried(PARKED, uid, body, now_ms() + wait_ms)
        fields = send_fields(PARKED, rng.randrange(QUEUES), i=properties_text(**properties))
        call(connection, SEND_MESSAGE_V2, fields, body)
        wait.granted += 1
        self.counts[kind] += 1


class Consumer(Client):
    """Pulls what was parked, hands some of it back, and commits how far it is."""

    name = "consumer"

    def __init__(self, waits: Waits, saved_ms: int) -> None:
        super().__init__()
        self.old_max_s = saved_ms / 1_000 + SAVING_S
        self.waits = waits
        self.places = [*((PARKED, queue_id) for queue_id in range(QUEUES)), (RETRY, 0)]
        self.commits = {place: Commits() for place in self.places}
        self.at = dict.fromkeys(self.places, 0)

    def connected(self, connection: RawConnection) -> None:
        """Go on where the broker says; what it says must be true."""
        for topic, queue_id in self.places:
            found = committed_offsets(connection, GROUP, topic, QUEUES).get(queue_id, 0)
            assert found <= max_offset(connection, topic, queue_id), "behind the end of the queue"
            commits = self.commits[topic, queue_id]
            wrong = commits.begin(time.monotonic(), found, self.killed_at - self.old_max_s)
            assert not wrong, (topic, queue_id, *wrong)
            self.at[topic, queue_id] = found
            self.counts["offsets found"] += 1

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        place = rng.choice(self.places)
        fields = pull_fields(GROUP, *place, self.at[place], maxMsgNums=AT_ONCE)
        for record in records(connection.call(PULL_MESSAGE, fields).body):
            if self.disk_fills:
                self.at[place] = max(self.at[place], record.queue_offset)
            assert record.queue_offset == self.at[place], (place, record.queue_offset, self.at)
            if not self.closing and rng.random() < 0.3:
                self._hand_back(connection, record, rng.randrange(len(LEVELS_MS)))
            self.at[place] += 1
        commits = self.commits[place]
        if self.at[place] > commits.granted[-1][1]:
            commits.highest = max(commits.highest, self.at[place])
            fields = {"consumerGroup": GROUP, "topic": place[0], "queueId": place[1]}
            call(connection, UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": self.at[place]})
            commits.granted.append((time.monotonic(), self.at[place]))
            self.counts["commits"] += 1

    def _hand_back(self, connection: RawConnection, record: RawRecord, level: int) -> None:
        due_ms = now_ms() + LEVELS_MS[level]
        wait = self.waits.tried(RETRY, uid_of(record), record.body, due_ms)
        fields = {"offset": record.physical_offset, "group": GROUP, "delayLevel": level + 1}
        call(connection, CONSUMER_SEND_MSG_BACK, fields)
        wait.granted += 1
        self.counts["hand-backs"] += 1


class Bank(Client):
    """Begins transactions; ends some, and says what became of the others when it is asked."""

    name = "pay"

    def __init__(self) -> None:
        super().__init__()
        self.history = TransactionHistory()

    def connected(self, connection: RawConnection) -> None:
        """From now on it can be asked."""
        self._beat(connection)

    def _beat(self, connection: RawConnection) -> None:
        beat = {"clientID": self.name, "producerDataSet": [{"groupName": self.name}]}
        call(connection, HEART_BEAT, {}, json.dumps(beat).encode())

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        if self.closing:
            self._beat(connection)
        else:
            self._transaction(connection, rng)
        asked, connection.asked = connection.asked, []
        for request in asked:
            assert request.code == CHECK_TRANSACTION_STATE, request
            self.counts["checks"] += 1
            unsure = not self.closing and rng.random() < 0.2
            self._end(connection, request.ext, unsure=unsure, fromTransactionCheck=True)

    def _transaction(self, connection: RawConnection, rng: random.Random) -> None:
        uid, body = self.body(rng)
        transaction = self.history.began(uid, body, commits=rng.random() < 0.5)
        text = properties_text(TRAN_MSG="true", PGROUP=self.name, UNIQ_KEY=uid)
        half = {"a": self.name, "f": HALF_FLAG, "g": now_ms(), "i": text}
        fields = send_fields(PAID, rng.randrange(QUEUES), **half)
        told = call(connection, SEND_MESSAGE_V2, fields, body).ext
        transaction.acked = True
        self.counts["halves"] += 1
        if rng.random() < 0.7:
            place = int(told["msgId"][16:], 16)
            half = {"tranStateTableOffset": told["queueOffset"], "commitLogOffset": place}
            self._end(connection, half | {"msgId": uid})
            self.counts["ends"] += 1

    def _end(
        self,
        connection: RawConnection,
        half: Mapping[str, object],
        *,
        unsure: bool = False,
        **more: object,
    ) -> None:
        transaction = self.history.begun[str(half["msgId"])]
        how = COMMIT if transaction.commits and transaction.acked else ROLLBACK
        fields = {"producerGroup": self.name, "commitOrRollback": UNKNOWN if unsure else how}
        names = ("tranStateTableOffset", "commitLogOffset", "msgId")
        place = {name: half[name] for name in names}
        connection.ask(END_TRANSACTION, {**place, **fields, **more}, oneway=True)


class Popper(Client):
    """Sends, pops, and acknowledges some of what it gets."""

    def __init__(self, topic: str, *, orderly: bool) -> None:
        super().__init__()
        self.name = topic
        self.pops = Pops(orderly)
        self._left: list[tuple[Mapping[str, str], RawRecord, Delivery]] = []
        """What this life has popped and not acknowledged."""

    def begin_life(self, life: int) -> None:
        self.pops.life = life

    def connected(self, connection: RawConnection) -> None:
        """Of what the last life handed out, some is done only now."""
        left, self._left = self._left, []
        for told, record, delivery in left[-1 : -2 * AT_ONCE : -2]:
            self._acknowledge(connection, told, record, delivery)
            self.counts["acknowledged in the next life"] += 1

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        if not self.closing:
            uid, body = self.body(rng)
            sent = self.pops.tried(uid, body)
            call(connection, SEND_MESSAGE_V2, send_fields(self.name, rng.randrange(QUEUES)), body)
            sent.granted = True
            self.counts["to be popped"] += 1
        if self.closing or rng.random() < 0.3:
            self._pop(connection, rng)

    def _pop(self, connection: RawConnection, rng: random.Random) -> None:
        invisible_ms = rng.randint(*INVISIBLE_MS)
        wanted = {"consumerGroup": f"{self.name}-group", "topic": self.name, "queueId": -1}
        how = {"invisibleTime": invisible_ms, "pollTime": 0, "order": self.pops.orderly}
        fields = {**wanted, **how, "maxMsgNums": AT_ONCE, "initMode": 0}
        answer = connection.call(POP_MESSAGE, fields)
        if answer.code == POLLING_TIMEOUT:
            return
        assert answer.code == SUCCESS, f"{answer.code} {answer.remark}"
        due_ms = int(answer.ext["popTime"]) + invisible_ms
        found = list(records(answer.body))
        came = [(record, self.pops.came(record, due_ms)) for record in found]
        self.counts["popped"] += len(came)
        for record, delivery in came:
            if self.closing or rng.random() < 0.6:
                self._acknowledge(connection, answer.ext, record, delivery)
            else:
                self._left.append((answer.ext, record, delivery))

    def _acknowledge(
        self,
        connection: RawConnection,
        told: Mapping[str, str],
        record: RawRecord,
        delivery: Delivery,
    ) -> None:
        handle = receipt(told, record)
        group = f"{self.name}-group"
        topic = self.name if handle.split(" ")[4] == "0" else f"%RETRY%{group}_{self.name}"
        place = {"topic": topic, "queueId": record.queue_id, "offset": record.queue_offset}
        delivery.tried = True
        fields = {"consumerGroup": group, "extraInfo": handle, **place}
        granted = (SUCCESS, NO_MESSAGE) if self.disk_fills else (SUCCESS,)
        if call(connection, ACK_MESSAGE, fields, granted=granted).code == NO_MESSAGE:
            self.counts["deleted before acknowledged"] += 1
            return
        delivery.acked_ms = now_ms()
        self.counts["popped acknowledged"] += 1


def receipt(told: Mapping[str, str], record: RawRecord, broker: str = BROKER_NAME) -> str:
    """The receipt handle of a popped message. Source: semantics §11.1."""
    pairs = (pair.split("\x01") for pair in record.properties.split("\x02") if pair)
    if given := dict(pairs).get("POP_CK"):
        return given
    entries = (entry.split(" ") for entry in told["startOffsetInfo"].split(";"))
    starts = {queue_id: start for retry, queue_id, start in entries if retry == "0"}
    start = starts[str(record.queue_id)]
    pop = f"{told['popTime']} {told['invisibleTime']} {told['reviveQid']}"
    return f"{start} {pop} 0 {broker} {record.queue_id} {record.queue_offset}"
