"""What each feature does across a failover: all of it is begun at a master that is then killed.

Slaves copy their tables so seldom here that whatever they know of progress came by itself.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee import blocking
from aerobee.errors import AerobeeError
from aerobee.remoting.wire import relaxed_json
from tests.faults.feature_clients import (
    ACK_MESSAGE,
    CHECK_TRANSACTION_STATE,
    COMMIT,
    END_TRANSACTION,
    HALF_FLAG,
    HEART_BEAT,
    POLLING_TIMEOUT,
    POP_MESSAGE,
    ROLLBACK,
    UPDATE_CONSUMER_OFFSET,
    call,
    receipt,
)
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import NAME, FailoverGroup
from tests.kit.raw_client import Closed, RawConnection, properties_text, records, send_fields
from tests.kit.reading import committed_offsets, max_offset, read_topic
from tests.kit.replicas import SEND, SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.kit.raw_client import RawAnswer, RawRecord

pytestmark = [pytest.mark.faults, pytest.mark.ours]

ALL_OFFSETS, TIMER_CHECK = 43, 60
LOCK, CREATE_GROUP = 41, 200
WITHIN_S = 90.0
SOON_S = 30.0
"""Far below the period in which slaves copy all tables."""
DELAYED, TIMED, PAID, POPPED, READ = "delayed", "timed", "paid", "popped", "read"
GROUP, POPPERS, PAYERS = "readers", "poppers", "payers"
FIRST_LEVEL_S, SECOND_LEVEL_S = 1, 12
INVISIBLE_MS = 15_000
MESSAGES = 60
"""More than any offset that is committed."""
SETTINGS: dict[str, object] = {
    "slaveTablesPeriod": 3_600_000,
    "messageDelayLevel": f"{FIRST_LEVEL_S}s {SECOND_LEVEL_S}s",
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 100,
    "reviveInterval": 200,
    "reviveQueueNum": 1,
}


class Half(NamedTuple):
    """A transaction that was begun, as its end names it."""

    uid: str
    place: Mapping[str, object]


def send(
    connection: RawConnection, topic: str, body: str, queue: int = 0, **properties: str
) -> RawAnswer:
    """A send that must be acknowledged."""
    fields = send_fields(topic, queue, i=properties_text(**properties))
    return call(connection, SEND, fields, body.encode())


def began(connection: RawConnection, uid: str) -> Half:
    """A half message that is acknowledged."""
    text = properties_text(TRAN_MSG="true", PGROUP=PAYERS, UNIQ_KEY=uid)
    born_ms = int(time.time() * 1_000)
    fields = send_fields(PAID, 0, a=PAYERS, f=HALF_FLAG, g=born_ms, i=text)
    told = call(connection, SEND, fields, uid.encode()).ext
    offset = int(told["msgId"][16:], 16)
    place = {"tranStateTableOffset": told["queueOffset"], "commitLogOffset": offset}
    return Half(uid, place | {"msgId": uid})


def end(connection: RawConnection, half: Half, how: int, *, checked: bool = True) -> None:
    """Commit or roll back; that of a check may come late."""
    fields = {"producerGroup": PAYERS, "commitOrRollback": how, "fromTransactionCheck": checked}
    call(connection, END_TRANSACTION, {**half.place, **fields})


def bodies(connection: RawConnection, topic: str, queue: int = 0) -> list[str]:
    """The bodies of a queue that consumers see."""
    return [one.body.decode() for one in read_topic(connection, topic, queue)]


def commit(connection: RawConnection, offset: int, queue: int = 0) -> int:
    """The code that the commit of a group is answered with."""
    return connection.call(UPDATE_CONSUMER_OFFSET, commit_fields(offset, queue)).code


def commit_fields(offset: int, queue: int = 0) -> dict[str, object]:
    place = {"consumerGroup": GROUP, "topic": READ, "queueId": queue}
    return {**place, "commitOffset": offset}


def committed(connection: RawConnection) -> int:
    """What the group has committed in its first queue; −1: nothing."""
    return committed_offsets(connection, GROUP, READ, 1).get(0, -1)


def lock_body(client: str, queue_id: int = 0) -> bytes:
    queue = {"topic": READ, "brokerName": NAME, "queueId": queue_id}
    wanted = {"consumerGroup": GROUP, "clientId": client, "mqSet": [queue]}
    return json.dumps(wanted).encode()


def locked(answer: RawAnswer) -> bool:
    """Whether a request for a lock was granted."""
    return answer.code == SUCCESS and bool(json.loads(answer.body)["lockOKMQSet"])


def lock(connection: RawConnection, client: str, queue_id: int = 0) -> bool:
    """Whether a client gets the lock of a queue."""
    return locked(connection.call(LOCK, None, lock_body(client, queue_id)))


def popped(connection: RawConnection, count: int) -> list[tuple[RawRecord, str]]:
    """What one pop gives, with the receipts."""
    wanted = {"consumerGroup": POPPERS, "topic": POPPED, "queueId": -1, "initMode": 0}
    how = {"invisibleTime": INVISIBLE_MS, "pollTime": 0, "order": False, "maxMsgNums": count}
    answer = connection.call(POP_MESSAGE, wanted | how)
    assert answer.code in (SUCCESS, POLLING_TIMEOUT), answer
    found = records(answer.body) if answer.code == SUCCESS else ()
    return [(one, receipt(answer.ext, one, NAME)) for one in found]


def acknowledge(connection: RawConnection, record: RawRecord, handle: str) -> None:
    # A message that came back lies in the retry topic, and its receipt says so.
    topic = POPPED if handle.split(" ")[4] == "0" else f"%RETRY%{POPPERS}_{POPPED}"
    place = {"topic": topic, "queueId": record.queue_id, "offset": record.queue_offset}
    call(connection, ACK_MESSAGE, {"consumerGroup": POPPERS, "extraInfo": handle, **place})


def offsets_of(address: str) -> dict[str, dict[str, int]]:
    """All offsets of a member, as a slave asks for them."""
    with RawConnection(address) as connection:
        document = relaxed_json.decode(call(connection, ALL_OFFSETS, {}).body)
    table: dict[str, dict[str, int]] = document["offsetTable"]
    return table


class Story:
    """What was begun at a master before it was killed."""

    def __init__(self, group: FailoverGroup) -> None:
        self.group = group
        self.first = group.until_master()
        self.halves: dict[str, Half] = {}
        self.acknowledged: set[str] = set()
        self.due_ms = 0.0
        """What was parked last may come from then on."""
        self.killed_ms = 0.0

    def address(self, member: int) -> str:
        return self.group.members[member].address

    def connect(self, *, but: int = 0) -> RawConnection:
        """To the master of the moment."""
        return RawConnection(self.address(self.group.until_master(but=but)))

    def begin(self) -> None:
        """All of it, before the kill."""
        for topic in (DELAYED, TIMED, PAID, POPPED, READ):
            self.group.make_topic(topic)
        with RawConnection(self.address(self.first)) as connection:
            for name in (GROUP, POPPERS):
                call(connection, CREATE_GROUP, {}, json.dumps({"groupName": name}).encode())
            send(connection, DELAYED, "before", DELAY="1")
            send(connection, TIMED, "before", TIMER_DELAY_MS="1000")
            for uid in ("committed", "rolled back", "checked", "committed later"):
                self.halves[uid] = began(connection, uid)
            end(connection, self.halves["committed"], COMMIT)
            end(connection, self.halves["rolled back"], ROLLBACK)
            for number in range(6):
                send(connection, POPPED, f"popped {number}")
            for number in range(MESSAGES):
                send(connection, READ, f"read {number}")
            assert lock(connection, "one")
            self.until_delivered(connection)
            self.pop(connection)
            self.commit(connection)
            parked_ms = time.time() * 1_000
            self.due_ms = parked_ms + 1_000 * SECOND_LEVEL_S
            send(connection, DELAYED, "after", DELAY="2")
            send(connection, TIMED, "after", TIMER_DELAY_MS=str(1_000 * SECOND_LEVEL_S))

    def until_delivered(self, connection: RawConnection) -> None:
        """What is due early has come, and the timers have saved that it has."""
        due_ms = time.time() * 1_000 + 2_000
        eventually(
            lambda: max_offset(connection, DELAYED, 0) and max_offset(connection, TIMED, 0),
            within_s=WITHIN_S,
            what="the early ones",
        )
        eventually(
            lambda: int.from_bytes(call(connection, TIMER_CHECK, {}).body[:8], "big") > due_ms,
            within_s=WITHIN_S,
            what="timers that are saved",
        )

    def pop(self, connection: RawConnection) -> None:
        """Six come, and three are acknowledged."""
        came: list[tuple[RawRecord, str]] = []
        while len(came) < 6:
            came += popped(connection, 6)
        for record, handle in came[:3]:
            acknowledge(connection, record, handle)
            self.acknowledged.add(record.body.decode())
        # What is acknowledged behind them says that they are everywhere.
        send(connection, READ, "behind the acknowledgements")

    def commit(self, connection: RawConnection) -> None:
        """Twice: when slaves have the second one, they have all that is older."""
        for offset in (6, 7):
            assert commit(connection, offset) == SUCCESS
            for member in self.group.members:
                self.until_known(member, offset)

    def until_known(self, member: int, offset: int) -> None:
        wanted = {"0": offset}
        eventually(
            lambda: offsets_of(self.address(member)).get(f"{READ}@{GROUP}") == wanted,
            within_s=SOON_S,
            what=f"the offset {offset} at member {member}",
        )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailoverGroup]:
    root = tmp_path_factory.mktemp("features")
    with (
        EtcdNode(data=root / "etcd") as etcd,
        FailoverGroup(root / "group", [etcd], settings=SETTINGS) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def story(group: FailoverGroup) -> Iterator[Story]:
    """Another master is there, and the first one is gone."""
    story = Story(group)
    story.begin()
    group.members[story.first].kill()
    story.killed_ms = time.time() * 1_000
    group.until_master(but=story.first)
    yield story
    with suppress(AssertionError):
        group.members[story.first].start()


def test_queue_locks_are_asked_for_anew_and_no_slave_gives_any(story: Story) -> None:
    group = story.group
    master = group.until_master()
    with RawConnection(story.address(master)) as connection:
        assert lock(connection, "two")
        assert not lock(connection, "one")
    (slave,) = set(group.members) - {story.first, master}
    with RawConnection(story.address(slave)) as connection:
        assert not lock(connection, "two")


def test_offsets_that_slaves_have_are_those_of_the_next_master(story: Story) -> None:
    with story.connect() as connection:
        assert committed(connection) == 7
        assert commit(connection, 8) == SUCCESS
        assert committed(connection) == 8


def test_a_slave_says_of_no_group_where_it_is(story: Story) -> None:
    group = story.group
    (slave,) = set(group.members) - {story.first, group.until_master()}
    with RawConnection(story.address(slave)) as connection:
        fields = {"consumerGroup": GROUP, "topic": READ, "queueId": 0, "setZeroIfNotFound": False}
        answer = connection.call(14, fields)
    # Not "no offset": a consumer would begin at the end.
    assert answer.code not in (SUCCESS, 22)


def test_open_halves_are_checked_and_ended_at_the_next_master(story: Story) -> None:
    with story.connect() as connection:
        end(connection, story.halves["committed later"], COMMIT)
        beat = {"clientID": "payer", "producerDataSet": [{"groupName": PAYERS}]}
        call(connection, HEART_BEAT, {}, json.dumps(beat).encode())
        while not connection.asked:
            connection.socket.settimeout(WITHIN_S)
            connection.asked.append(connection.hear_any())
        (asked,) = connection.asked
        assert asked.code == CHECK_TRANSACTION_STATE
        assert asked.ext["msgId"] == "checked"
        place = {name: asked.ext[name] for name in story.halves["checked"].place}
        end(connection, Half("checked", place), COMMIT)
        eventually(
            lambda: max_offset(connection, PAID, 0) >= 3, within_s=WITHIN_S, what="three commits"
        )
        assert sorted(bodies(connection, PAID)) == ["checked", "committed", "committed later"]


@pytest.mark.parametrize("topic", [DELAYED, TIMED])
def test_what_waits_comes_from_the_next_master_and_nothing_twice(story: Story, topic: str) -> None:
    with story.connect() as connection:
        eventually(
            lambda: "after" in bodies(connection, topic), within_s=WITHIN_S, what="the late one"
        )
        came = read_topic(connection, topic, 0)
    assert [one.body.decode() for one in came] == ["before", "after"]
    assert came[-1].store_timestamp >= story.due_ms - 1_000


def test_what_was_popped_comes_back_unless_it_was_acknowledged(story: Story) -> None:
    came: list[str] = []
    with story.connect() as connection:

        def all_came() -> bool:
            for record, handle in popped(connection, 6):
                came.append(record.body.decode())
                acknowledge(connection, record, handle)
            return len(came) >= 6 - len(story.acknowledged)

        eventually(all_came, within_s=WITHIN_S, what="what nobody acknowledged")
    expected = {f"popped {number}" for number in range(6)} - story.acknowledged
    assert sorted(came) == sorted(expected)


def test_a_planned_switch_forgets_no_commit_and_begins_locks_anew(group: FailoverGroup) -> None:
    story = complete(group)
    with blocking.AdminClient(group.names.address) as admin:
        first, second, _ = ranked(group)
        offset = 20
        for old, new, client in ((first, second, "one"), (second, first, "two")):
            with RawConnection(story.address(old)) as connection:
                assert lock(connection, client, 1)
                assert commit(connection, offset) == SUCCESS
            admin.switch(story.address(old), story.address(new))
            group.until_master(but=old)
            with RawConnection(story.address(new)) as connection:
                assert committed(connection) == offset
            offset += 1
        # The lock of its first time is not that of the second.
        with RawConnection(story.address(first)) as connection:
            assert lock(connection, "two", 1)


def test_a_stop_forgets_no_commit(group: FailoverGroup) -> None:
    story = complete(group)
    first, *_ = ranked(group)
    with RawConnection(story.address(first)) as connection:
        assert commit(connection, 30) == SUCCESS
    assert group.members[first].stop() == 0
    with story.connect(but=first) as connection:
        assert committed(connection) == 30


def test_a_master_that_stood_still_takes_no_commit_and_gives_no_lock(group: FailoverGroup) -> None:
    story = complete(group)
    first, *_ = ranked(group)
    connections = [RawConnection(story.address(first)) for _ in range(8)]
    before = committed(connections[0])
    frozen = group.members[first].child
    frozen.signal(signal.SIGSTOP)
    try:
        second = group.until_master(but=first)
        for number, connection in enumerate(connections):
            connection.ask(UPDATE_CONSUMER_OFFSET, commit_fields(40 + number))
            connection.ask(LOCK, None, lock_body(f"late {number}"))
    finally:
        frozen.signal(signal.SIGCONT)
    for connection in connections:
        with connection, suppress(Closed):
            assert connection.hear().code != SUCCESS
            assert not locked(connection.hear())
    with RawConnection(story.address(second)) as connection:
        assert committed(connection) == before


def complete(group: FailoverGroup) -> Story:
    """All members run and are in the sync set."""
    for member in group.members.values():
        if not member.child.running:
            member.start()
    group.until_complete()
    return Story(group)


def ranked(group: FailoverGroup) -> list[int]:
    """The members, the master first."""
    master = group.until_master()
    return [master, *(member for member in group.members if member != master)]


def test_consumers_in_order_go_on_in_order(group: FailoverGroup) -> None:
    complete(group)
    first, *_ = ranked(group)
    topic, queues, count = "ordered", 2, 120
    group.make_topic(topic)
    came: dict[int, list[int]] = {queue: [] for queue in range(queues)}
    half, all_came = threading.Event(), threading.Event()

    def handle(messages: Sequence[blocking.ReceivedMessage]) -> None:
        for message in messages:
            queue, number = map(int, message.body.split())
            came[queue].append(number)
            if number >= count // 2:
                half.set()
        if all(len(set(numbers)) == count for numbers in came.values()):
            all_came.set()

    names = group.names.address
    begin = blocking.ConsumeFrom.FIRST
    consumer = blocking.PushConsumer(
        "in-order", names, orderly=True, start_from=begin, commit_interval=1.0
    )
    consumer.subscribe(topic, handler=handle)
    with blocking.Producer(names) as producer, consumer:
        for number in range(count):
            if number == count // 2 + 1:
                assert half.wait(WITHIN_S)
                group.members[first].kill()
            for queue in range(queues):
                stored(producer, topic, queue, f"{queue} {number}")
        assert all_came.wait(WITHIN_S)
    for numbers in came.values():
        assert list(dict.fromkeys(numbers)) == list(range(count))


def stored(producer: blocking.Producer, topic: str, queue: int, body: str) -> None:
    """Send until it is acknowledged: nothing behind it is sent before."""
    place = blocking.MessageQueue(topic, NAME, queue)

    def acknowledged() -> bool:
        try:
            producer.send(blocking.Message(topic, body.encode()), queue=place, require_ok=True)
        except AerobeeError:
            return False
        return True

    eventually(acknowledged, within_s=WITHIN_S, what=f"an acknowledgement of {body}")
