"""Topics that are not those that were read any more, told by the last message of each."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from aerobee.spark.offsets import Queue
from aerobee.spark.options import read_options
from aerobee.spark.source.last_read import LastRead
from aerobee.spark.source.plan import LossCause
from aerobee.spark.source.streaming import StreamCluster
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic
from tests.kit.raw_client import RawConnection

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

DELETE_TOPIC_IN_BROKER = 215
TOPIC, BROKER = "orders", "broker-a"
RECORD_HEAD = 88
"""The bytes of a record in front of its body, with two IPv4 addresses."""


def queue(number: int) -> Queue:
    return Queue(TOPIC, BROKER, number)


def at(broker: AnyBroker, topics: str = TOPIC) -> StreamCluster:
    options = {"nameserver": broker.namesrv_address, "topic": topics}
    cluster = StreamCluster(read_options(options, stream=True))
    cluster.look_up(strict=True)
    return cluster


def make_anew(broker: AnyBroker) -> None:
    with RawConnection(broker.address) as connection:
        assert connection.call(DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
    make_topic(broker, TOPIC, 2)


def copied(broker: AnyBroker) -> Path:
    """A copy of its store as it is now."""
    kept = broker.data.with_name("kept")
    broker.stop()
    shutil.copytree(broker.data, kept)
    broker.start()
    return kept


def put_back(broker: AnyBroker, kept: Path) -> None:
    """Let it go on with the copy."""
    broker.stop()
    shutil.rmtree(broker.data)
    kept.rename(broker.data)
    broker.start()


@pytest.fixture
def broker(start_broker: StartBroker) -> AnyBroker:
    """With ten messages in the first queue of the topic and none in the second."""
    broker = start_broker(brokerName=BROKER, mappedFileSizeCommitLog=65_536)
    make_topic(broker, TOPIC, 2)
    fill(broker, TOPIC, bodies(10))
    return broker


def test_a_topic_goes_on_with_the_message_that_was_read_last(broker: AnyBroker) -> None:
    last_read = LastRead(at(broker))
    begin = {queue(0): 10, queue(1): 0}
    times = last_read.times({}, begin, {})
    assert [*times] == [queue(0)]
    fill(broker, TOPIC, bodies(5), queue_id=1)
    latest = {queue(0): 10, queue(1): 5}
    assert last_read.changed(begin, latest, times) == ({}, [])
    assert [*last_read.times(begin, latest, times)] == [queue(1)], "one queue is enough"
    assert last_read.times(latest, latest, times) == times, "that of a topic that stands still"


def test_a_checkpoint_without_a_time_gets_one_when_the_query_starts(broker: AnyBroker) -> None:
    """Of a build before, or of a stream that has read nothing yet."""
    last_read = LastRead(at(broker))
    begin = {queue(0): 10, queue(1): 0}
    known = last_read.known(begin, {})
    assert known == last_read.times({}, begin, {})
    assert last_read.known(begin, {queue(1): 1}) == {queue(1): 1}, "what is there is kept"
    make_anew(broker)
    fill(broker, TOPIC, bodies(20))
    assert last_read.known(begin, {}) == known, "it is asked for once"
    renewed, losses = last_read.changed(begin, {queue(0): 20, queue(1): 0}, known)
    assert renewed == {queue(0): 0}
    assert [(loss.start, loss.end, loss.lost) for loss in losses] == [(0, 10, LossCause.RENEWED)]


def test_all_queues_of_a_topic_made_anew_begin_again(broker: AnyBroker) -> None:
    """Also when the one whose time is known has no messages in the new one."""
    fill(broker, TOPIC, bodies(3), queue_id=1)
    last_read = LastRead(at(broker))
    begin = {queue(0): 10, queue(1): 3}
    times = {queue(1): last_read.times({}, {queue(1): 3}, {})[queue(1)]}
    make_anew(broker)
    fill(broker, TOPIC, bodies(20))
    latest = {queue(0): 20, queue(1): 0}
    assert last_read.changed(begin, latest, times).renewed == {queue(0): 0, queue(1): 0}


def test_a_broker_that_lost_its_last_messages_and_got_others_has_no_new_topic(
    broker: AnyBroker,
) -> None:
    kept = copied(broker)
    fill(broker, TOPIC, bodies(10))
    last_read = LastRead(at(broker))
    begin = {queue(0): 20}
    times = last_read.times({}, begin, {})
    put_back(broker, kept)
    assert last_read.changed(begin, {queue(0): 10}, times) == ({}, []), "its end says enough"
    fill(broker, TOPIC, bodies(15))
    renewed, losses = last_read.changed(begin, {queue(0): 25}, times)
    assert not renewed
    assert [(loss.start, loss.end, loss.lost) for loss in losses] == [(19, 20, LossCause.REWRITTEN)]


def test_a_queue_with_other_messages_is_no_new_topic_while_other_queues_go_on(
    broker: AnyBroker,
) -> None:
    """All that the queue had was lost, as by a fail-over: every message in it is newer."""
    kept = copied(broker)
    fill(broker, TOPIC, bodies(1), queue_id=1)
    last_read = LastRead(at(broker))
    begin = {queue(0): 10, queue(1): 1}
    times = last_read.times({queue(0): 10}, begin, {})
    assert [*times] == [queue(1)]
    put_back(broker, kept)
    fill(broker, TOPIC, bodies(3), queue_id=1)
    renewed, losses = last_read.changed(begin, {queue(0): 10, queue(1): 3}, times)
    assert not renewed, "the other queue would be read once more"
    assert [(loss.queue, loss.start, loss.end) for loss in losses] == [(queue(1), 0, 1)]
    assert losses[0].lost is LossCause.REWRITTEN


@pytest.mark.ours
@pytest.mark.parametrize("trouble", ["damaged", "refused"])
def test_one_message_that_cannot_be_read_hides_no_others(broker: AnyBroker, trouble: str) -> None:
    other = Queue("payments", BROKER, 0)
    make_topic(broker, other.topic)
    fill(broker, other.topic, [b"the last one"])
    last_read = LastRead(at(broker, f"{TOPIC},{other.topic}"))
    begin = {queue(0): 10, other: 1}
    assert {*last_read.times({}, begin, {})} == {*begin}
    if trouble == "refused":
        with RawConnection(broker.address) as connection:
            assert connection.call(DELETE_TOPIC_IN_BROKER, {"topic": other.topic}).code == 0
    else:
        [log] = (broker.data / "commitlog").iterdir()
        with log.open("r+b") as file:
            file.seek(file.read().index(b"the last one") - RECORD_HEAD)
            file.write(b"\xff" * 8)
    times = last_read.times({}, begin, {})
    assert [*times] == [queue(0)]
    assert last_read.known(begin, {}) == times
    fill(broker, TOPIC, bodies(1))
    assert last_read.changed(begin, {queue(0): 11, other: 1}, times) == ({}, [])


@pytest.mark.ours
def test_nothing_is_decided_when_the_message_that_was_read_last_has_expired(
    broker: AnyBroker,
) -> None:
    last_read = LastRead(at(broker))
    begin = {queue(0): 10}
    times = last_read.times({}, begin, {})
    fill(broker, TOPIC, bodies(3_000))
    expire(broker, segments=2)
    assert last_read.changed(begin, {queue(0): 3_010}, times) == ({}, [])
    assert LastRead(at(broker)).known(begin, {}) == {}


def test_a_broker_that_does_not_answer_decides_nothing(broker: AnyBroker) -> None:
    last_read = LastRead(at(broker))
    begin = {queue(0): 10}
    times = last_read.times({}, begin, {})
    broker.stop()
    assert last_read.changed(begin, {queue(0): 20}, times) == ({}, [])
    assert last_read.times(begin, {queue(0): 20}, times) == {}, "not the time of another offset"
