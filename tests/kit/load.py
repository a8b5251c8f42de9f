"""Load for crash tests: a few connections that keep a window of sends in flight until told to stop.

Every send is written into a `History` before its first byte leaves, every acknowledgement when it
was read. Sends go out one by one or as batches, with bodies of all sizes, so that records end
anywhere in a file. The broker's death ends a connection; nothing is repeated.
"""

import random
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.kit.history import History, Place, Stored
from tests.kit.raw_client import (
    Closed,
    RawAnswer,
    RawConnection,
    RawRecord,
    batch_body,
    properties_text,
    send_fields,
)
from tests.kit.reading import read_topic

SEND_MESSAGE_V2, SEND_BATCH_MESSAGE = 310, 320
SUCCESS = 0
SEPARATOR = b"|"
"""Between the unique id and the filling of a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the load looks like."""

    topics: Sequence[str] = ("load-a", "load-b")
    queues: int = 4
    connections: int = 4
    window: int = 16
    """Sends in flight on each connection."""
    max_body_bytes: int = 2_048
    batch: int = 5
    """Messages in a batch; the last connection sends nothing else."""
    tags: Sequence[str] = ("load",)
    rest_s: float = 0.0
    """How long a connection is silent after a refusal."""
    text: bool = False
    """Bodies are plain text, for readers that would stumble over other bytes."""

    def tag(self, uid: str) -> str:
        """Which of the tags the message with this id has."""
        return self.tags[zlib.crc32(uid.encode()) % len(self.tags)]


@dataclass(slots=True)
class _Sender:
    """One connection, one producer of the history."""

    load: "Load"
    name: str
    rng: random.Random
    batch: int
    number: int = 0
    pending: dict[int, list[str]] = field(default_factory=dict)
    """Opaque → the ids that its answer acknowledges."""

    def run(self) -> None:
        """Until the broker is gone or the load is over."""
        try:
            with RawConnection(self.load.address) as connection:
                self._talk(connection)
        except (Closed, OSError) as error:
            self.load.ended[self.name] = repr(error)

    def _talk(self, connection: RawConnection) -> None:
        while not self.load.over.is_set():
            while len(self.pending) < self.load.shape.window:
                self._send(connection)
            self._heard(connection.hear())

    def _send(self, connection: RawConnection) -> None:
        shape = self.load.shape
        topic = self.rng.choice(shape.topics)
        queue_id = self.rng.randrange(shape.queues)
        bodies = [self._body(topic, queue_id) for _ in range(self.batch)]
        uids = [uid for uid, _ in bodies]
        self.pending[connection.opaque + 1] = uids
        if self.batch == 1:
            text = properties_text(KEYS=uids[0], TAGS=shape.tag(uids[0]))
            fields = send_fields(topic, queue_id, i=text)
            connection.ask(SEND_MESSAGE_V2, fields, bodies[0][1])
        else:
            items = {body: properties_text(KEYS=uid, TAGS=shape.tag(uid)) for uid, body in bodies}
            fields = send_fields(topic, queue_id, m=True)
            connection.ask(SEND_BATCH_MESSAGE, fields, batch_body(items))

    def _body(self, topic: str, queue_id: int) -> tuple[str, bytes]:
        self.number += 1
        uid = f"{self.name}.{self.number}"
        filling = self.rng.randbytes(self.rng.randrange(self.load.shape.max_body_bytes))
        if self.load.shape.text:
            filling = filling.hex().encode()[: len(filling)]
        body = uid.encode() + SEPARATOR + filling
        self.load.history.tried(uid, self.name, topic, queue_id, body)
        return uid, body

    def _heard(self, answer: RawAnswer) -> None:
        uids = self.pending.pop(answer.opaque)
        if answer.code != SUCCESS:
            self.load.refused.append(f"{answer.code}: {answer.remark}")
            if self.load.shape.rest_s:
                self.load.over.wait(self.load.shape.rest_s)
            return
        first = int(answer.ext["queueOffset"])
        for at, uid in enumerate(uids):
            self.load.history.acked(uid, first + at)
        self.load.count_acks(len(uids))


class Load:
    """One run of load against one broker, from construction to `join`."""

    def __init__(
        self, address: str, history: History, *, seed: str, shape: Shape | None = None
    ) -> None:
        self.address = address
        self.history = history
        self.shape = shape or Shape()
        self.over = threading.Event()
        self.refused: list[str] = []
        """Answers other than success, in words."""
        self.ended: dict[str, str] = {}
        """Why a connection ended, by sender."""
        self._acks = 0
        self._target = 0
        self._acked_enough = threading.Condition()
        self._threads = [
            threading.Thread(target=self._sender(seed, number).run, name=f"load-{number}")
            for number in range(self.shape.connections)
        ]
        for thread in self._threads:
            thread.start()

    def _sender(self, seed: str, number: int) -> _Sender:
        name = f"{seed}-{number}"
        last = number == self.shape.connections - 1
        return _Sender(self, name, random.Random(name), self.shape.batch if last else 1)

    def count_acks(self, count: int) -> None:
        """Called by senders only."""
        with self._acked_enough:
            self._acks += count
            if self._acks >= self._target:
                self._acked_enough.notify_all()

    @property
    def acks(self) -> int:
        """Acknowledged so far."""
        return self._acks

    def wait_for_acks(self, count: int, *, within_s: float) -> None:
        """Until so many were acknowledged. Raises: AssertionError with what went wrong."""
        with self._acked_enough:
            self._target = count
            enough = self._acked_enough.wait_for(lambda: self._acks >= count, timeout=within_s)
        assert enough, f"{self._acks} of {count} acks; refused {self.refused[:3]}; {self.ended}"

    def join(self) -> None:
        """Let the senders end: the broker is dead, or they stop at their next answer."""
        self.over.set()
        for thread in self._threads:
            thread.join(timeout=20)
            assert not thread.is_alive(), f"{thread.name} hangs"


def stored(record: RawRecord) -> Stored:
    """A record of this load as the history knows it."""
    uid = record.body.partition(SEPARATOR)[0].decode("ascii", "replace")
    place = Place(record.topic, record.queue_id, record.queue_offset)
    return Stored(place, uid, record.body)


class Reader:
    """What is in the queues of a load; reads on where it stopped, so it costs only what is new."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.found: list[Stored] = []
        self._next: dict[tuple[str, int], int] = {}

    def read_on(self, address: str) -> list[Stored]:
        """Everything there was and is."""
        with RawConnection(address) as connection:
            for topic in self.shape.topics:
                for queue_id in range(self.shape.queues):
                    self._read_queue(connection, topic, queue_id)
        return self.found

    def _read_queue(self, connection: RawConnection, topic: str, queue_id: int) -> None:
        start = self._next.get((topic, queue_id), 0)
        for record in read_topic(connection, topic, queue_id, start=start):
            self.found.append(stored(record))
            self._next[topic, queue_id] = record.queue_offset + 1
