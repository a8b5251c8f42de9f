"""Clients of a group of brokers, which write down all that they do and see.

They know no routes: on each machine a sender goes on sending to each member, whoever is the master,
so that one which wrongly believes to be it is found. A reader follows each member, with its own
place in every queue. One client on each machine commits as it reads, at whoever says that it is the
master, and asks now and then for the offsets of its group and reads on from there.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from tests.kit.raw_client import (
    Closed,
    RawConnection,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.reading import (
    FOUND,
    NOT_FOUND,
    NOTHING,
    PULL_MESSAGE,
    QUERY_CONSUMER_OFFSET,
    max_offset,
    read_topic,
)
from tests.kit.replicas import CREATE_TOPIC, SEND, SUCCESS, ha_status
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tests.kit.client_history import Event, Recorder

TOPIC: Final = "judged"
QUEUES: Final = 2
COMMIT_OFFSET, CREATE_GROUP = 15, 200
ANSWER_WITHIN_S: Final = 6.0
"""Longer than a send waits for its slaves."""
REST_S: Final = 0.01
"""Between two sends that are acknowledged: how fast a broker is matters elsewhere."""
AGAIN_S: Final = 0.1
"""After a refusal, or when there is nothing to read."""
RESUME_AFTER: Final = 15
"""Commits between two questions for the offsets of a group."""
WITHIN_S: Final = 60.0
LOOK_WITHIN_S: Final = 1.0
SHOWN_WITHIN_S: Final = 120.0


class Acks:
    """How many acknowledgements there were, for a test that waits for some."""

    def __init__(self) -> None:
        self.count = 0
        self._one = threading.Condition()

    def add(self) -> None:
        """One more."""
        with self._one:
            self.count += 1
            self._one.notify_all()

    def wait_for(self, count: int, *, within_s: float = WITHIN_S) -> None:
        """Until there are so many more. Raises: AssertionError."""
        with self._one:
            wanted = self.count + count
            done = self._one.wait_for(lambda: self.count >= wanted, timeout=within_s)
        assert done, f"no {count} acknowledgements within {within_s:g} s"


@dataclass(frozen=True)
class Surroundings:
    """What all clients have."""

    recorder: Recorder
    members: Mapping[str, str]
    """The address of each."""
    over: threading.Event = field(default_factory=threading.Event)
    acks: Acks = field(default_factory=Acks)


@dataclass(kw_only=True)
class Client(ABC):
    """One thread with one connection at a time."""

    name: str
    about: Surroundings

    def __post_init__(self) -> None:
        self.over, self.note = self.about.over, self.about.recorder.note

    def run(self) -> None:
        """Until all is over."""
        while not self.over.is_set():
            with suppress(Closed, OSError):
                self.talk()
            self.over.wait(AGAIN_S)

    @abstractmethod
    def talk(self) -> None:
        """With one connection. Raises: Closed, OSError."""

    def connect(self, member: str) -> RawConnection:
        """Raises: OSError."""
        return RawConnection(self.about.members[member], timeout_s=ANSWER_WITHIN_S)


@dataclass(kw_only=True)
class Sender(Client):
    """Sends one message after the other to one member, to each queue in turn."""

    member: str

    def talk(self) -> None:
        with self.connect(self.member) as connection:
            for queue in itertools.cycle(range(QUEUES)):
                if self.over.wait(REST_S if self._stored(connection, queue) else AGAIN_S):
                    return

    def _stored(self, connection: RawConnection, queue: int) -> bool:
        """One send; whether it was acknowledged."""
        message = f"{self.name}.{time.monotonic_ns()}"
        note = self.note
        note("send", self.name, queue, message=message, broker=self.member)
        answer = None
        try:
            answer = connection.call(SEND, send_fields(TOPIC, queue), message.encode())
        finally:
            if answer is None or answer.code != SUCCESS:
                note("failed", self.name, queue, message=message, broker=self.member)
        if answer.code != SUCCESS:
            return False
        offset = int(answer.ext["queueOffset"])
        note("stored", self.name, queue, offset=offset, message=message, broker=self.member)
        self.about.acks.add()
        return True


@dataclass(kw_only=True)
class Reader(Client):
    """Reads every queue of one member, from its begin on."""

    member: str
    places: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(QUEUES), 0))

    def talk(self) -> None:
        with self.connect(self.member) as connection:
            while not self.over.is_set():
                if not self.read_on(connection, self.member):
                    self.over.wait(AGAIN_S)

    def read_on(self, connection: RawConnection, member: str) -> int:
        """One pull of each queue; how many messages there were."""
        count = 0
        for queue, place in self.places.items():
            answer = connection.call(PULL_MESSAGE, pull_fields(self.name, TOPIC, queue, place))
            if answer.code != FOUND:
                continue
            for one in records(answer.body):
                assert (one.topic, one.queue_id) == (TOPIC, queue), one
                message, offset = one.body.decode("utf-8", "replace"), one.queue_offset
                note = self.note
                note("read", self.name, queue, offset=offset, message=message, broker=member)
                self.places[queue] = offset + 1
                count += 1
        return count


@dataclass(kw_only=True)
class GroupConsumer(Reader):
    """Reads from the master, commits what it has read, and reads on where its group is."""

    member: str = ""

    def talk(self) -> None:
        master = next((name for name in self.about.members if self._leads(name)), None)
        if master is None:
            return
        with self.connect(master) as connection:
            while not self.over.is_set() and self._leads(master):
                if not self._resume(connection, master):
                    return
                for _ in range(RESUME_AFTER):
                    if not self.read_on(connection, master):
                        self.over.wait(AGAIN_S)
                    if not all(self._commit(connection, master, *each) for each in self._places()):
                        return

    def _places(self) -> list[tuple[int, int]]:
        return list(self.places.items())

    def _leads(self, member: str) -> bool:
        try:
            return bool(ha_status(self.about.members[member], within_s=LOOK_WITHIN_S)["master"])
        except (Closed, OSError):
            return False

    def _resume(self, connection: RawConnection, master: str) -> bool:
        for queue, place in self._places():
            asked_at = time.monotonic()
            fields = {"consumerGroup": self.name, "topic": TOPIC, "queueId": queue}
            fields["setZeroIfNotFound"] = False
            answer = connection.call(QUERY_CONSUMER_OFFSET, fields)
            if answer.code not in (SUCCESS, NOT_FOUND):
                return False
            offset = int(answer.ext["offset"]) if answer.code == SUCCESS else 0
            note = self.note
            note("found", self.name, queue, offset=offset, broker=master, at=asked_at)
            if offset != place:
                note("seek", self.name, queue, offset=offset, broker=master)
                self.places[queue] = offset
        return True

    def _commit(self, connection: RawConnection, master: str, queue: int, offset: int) -> bool:
        if offset == 0:
            return True
        note = self.note
        note("commit", self.name, queue, offset=offset, broker=master)
        fields = {"consumerGroup": self.name, "topic": TOPIC, "queueId": queue}
        answer = connection.call(COMMIT_OFFSET, {**fields, "commitOffset": offset})
        if answer.code != SUCCESS:
            return False
        note("committed", self.name, queue, offset=offset, broker=master)
        return True


class GroupClients:
    """All of them, from `with` to its end."""

    def __init__(
        self,
        recorder: Recorder,
        members: Mapping[str, str],
        machines: Sequence[str],
        inside: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """`members`: their addresses; `inside`: this thread is on one of the `machines` now."""
        self.about = about = Surroundings(recorder, dict(members))
        self.acks = about.acks
        self._inside = inside
        clients: list[tuple[str, Client]] = []
        for machine, member in itertools.product(machines, members):
            name = f"p-{machine}-{member}"
            clients.append((machine, Sender(name=name, about=about, member=member)))
        for machine, member in zip(itertools.cycle(machines), members, strict=False):
            clients.append((machine, Reader(name=f"r-{member}", about=about, member=member)))
        for machine, name in zip(machines, group_names(machines), strict=True):
            clients.append((machine, GroupConsumer(name=name, about=about)))
        self._threads = [
            threading.Thread(target=self._run, name=client.name, args=(machine, client))
            for machine, client in clients
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.about.over.set()
        for thread in self._threads:
            thread.join(timeout=WITHIN_S)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def _run(self, machine: str, client: Client) -> None:
        with self._inside(machine):
            client.run()


def group_names(machines: Iterable[str]) -> list[str]:
    """The consumer group on each machine."""
    return [f"g-{machine}" for machine in machines]


def make_topic(address: str, groups: Iterable[str]) -> None:
    """What the clients need, at the master."""
    with RawConnection(address) as connection:
        answer = connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES))
        assert answer.code == SUCCESS, answer
        for name in groups:
            answer = connection.call(CREATE_GROUP, None, json.dumps({"groupName": name}).encode())
            assert answer.code == SUCCESS, answer


def read_everything(recorder: Recorder, members: Mapping[str, str]) -> None:
    """What each member has in the end, when nobody sends and all of them have the same log.

    A slave shows the last messages once its master has told it that they are confirmed.
    """
    eventually(
        lambda: _show_the_same(members.values()), within_s=SHOWN_WITHIN_S, what="same queues"
    )
    for member, address in members.items():
        read_member(recorder, member, address)


def read_member(recorder: Recorder, member: str, address: str) -> bool:
    """What one of them has; whether it serves all of it."""
    name = f"end of {member}"
    with RawConnection(address) as connection:
        for queue in range(QUEUES):
            messages = read_topic(connection, TOPIC, queue)
            for one in messages:
                text = one.body.decode("utf-8", "replace")
                recorder.note("read", name, queue, offset=one.queue_offset, message=text)
            end = max_offset(connection, TOPIC, queue)
            if messages[-1].queue_offset + 1 != end:
                return False
            recorder.note("end", name, queue, offset=end)
    return True


def _show_the_same(addresses: Iterable[str]) -> bool:
    """Whether all serve the last message of each queue, which is the same one."""
    shown = {_ends(address) for address in addresses}
    return len(shown) == 1 and None not in shown


def _ends(address: str) -> tuple[int, ...] | None:
    """The end of each queue; None: the last message is not shown."""
    ends = []
    with RawConnection(address) as connection:
        for queue in range(QUEUES):
            ends.append(end := max_offset(connection, TOPIC, queue))
            fields = pull_fields("last", TOPIC, queue, max(0, end - 1))
            if connection.call(PULL_MESSAGE, fields).code not in (FOUND, NOTHING):
                return None
    return tuple(ends)


def longest_silence_s(events: Iterable[Event], since: float = 0.0) -> float:
    """The longest time without an acknowledgement to anybody, in seconds, from a moment on."""
    times = [event.at for event in events if event.what == "stored" and event.at >= since]
    return max((after - before for before, after in pairwise(times)), default=0.0)
