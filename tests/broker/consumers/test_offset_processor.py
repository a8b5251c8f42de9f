from collections.abc import Callable
from typing import Any

import pytest

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.consumers.clients import ClientTable
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.consumers.offset_processor import OffsetProcessor
from aerobee.broker.errors import Refusal
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers import offset as headers
from tests.broker.peers import HandClock, Peer, Saved, request

OPTIONS = BrokerOptions()


class Queues:
    """The store's answers about one topic: per queue its first and next offset."""

    def __init__(self) -> None:
        self.bounds: dict[int, tuple[int, int]] = {0: (0, 10), 1: (5, 10), 2: (0, 0)}
        self.cold: set[int] = set()
        self.searches: list[tuple[int, bool]] = []

    def reading(self, call: Callable[[], Answer]) -> Answer:
        return call()

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.bounds.get(queue_id, (0, 0))[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.bounds.get(queue_id, (0, 0))[1]

    def is_hot(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return queue_id not in self.cold

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        self.searches.append((timestamp_ms, upper))
        return 7

    def earliest_time(self, topic: str, queue_id: int) -> int:
        return 1_700_000_000_000 if self.max_offset(topic, queue_id) else -1


class Desk:
    """The processor with its tables, and one peer."""

    def __init__(self) -> None:
        self.queues = Queues()
        self.offsets = ConsumerOffsetTable()
        groups = GroupTable(OPTIONS)
        groups.find("g", 0)
        topics = TopicTable(OPTIONS)
        topics.update(TopicConfig(topic_name="t"), {}, 0)
        store: Any = self.queues
        self.processor = OffsetProcessor(
            topics=topics,
            groups=groups,
            offsets=self.offsets,
            clients=ClientTable(),
            changing=Saved(),
            store=store,
            clock=HandClock(),
        )
        self.peer: Any = Peer()

    def query(self, queue_id: int = 0, zero: bool | None = None) -> int:
        header = headers.QueryConsumerOffset(
            consumer_group="g", topic="t", queue_id=queue_id, set_zero_if_not_found=zero
        )
        command = request(RequestCode.QUERY_CONSUMER_OFFSET)
        answer = self.processor.query(header, command, self.peer)
        assert isinstance(answer, Answer)
        assert answer.code == 0
        assert isinstance(answer.header, headers.QueryConsumerOffsetResponse)
        return answer.header.offset

    def update(self, group: str = "g", topic: str = "t", **fields: Any) -> None:
        given = {"queue_id": 0, "commit_offset": 5, **fields}
        header = headers.UpdateConsumerOffset(consumer_group=group, topic=topic, **given)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert self.processor.update(header, command, self.peer).code == 0


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_committed_offset_is_what_the_group_is_told(desk: Desk) -> None:
    desk.update(commit_offset=5)
    assert desk.query() == 5
    desk.update(commit_offset=3)
    assert desk.query() == 3


def test_a_new_group_starts_at_0_while_the_first_message_is_in_memory(desk: Desk) -> None:
    assert desk.query(0) == 0
    assert desk.query(0, zero=True) == 0


def test_a_new_group_starts_at_0_of_a_queue_whose_first_message_is_to_come(desk: Desk) -> None:
    assert desk.query(2) == 0


@pytest.mark.parametrize("queue_id", [1, 99, -1])
def test_elsewhere_a_new_group_is_told_that_there_is_no_offset(desk: Desk, queue_id: int) -> None:
    with pytest.raises(Refusal) as caught:
        desk.query(queue_id)
    assert caught.value.code == 22
    assert caught.value.remark == (
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    )


def test_a_queue_whose_first_message_is_cold_has_no_offset_for_a_new_group(desk: Desk) -> None:
    desk.queues.cold.add(0)
    with pytest.raises(Refusal) as caught:
        desk.query(0)
    assert caught.value.code == 22


def test_a_client_may_ask_not_to_be_given_0(desk: Desk) -> None:
    with pytest.raises(Refusal) as caught:
        desk.query(0, zero=False)
    assert caught.value.code == 22


def test_a_negative_commit_is_taken_and_means_none(desk: Desk) -> None:
    desk.update(queue_id=1, commit_offset=-1)
    with pytest.raises(Refusal):
        desk.query(1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": "unknown"}, 26),
        ({"topic": "unknown"}, 17),
        ({"queue_id": None}, 29),
        ({"commit_offset": None}, 29),
        ({"group": "unknown", "topic": "unknown"}, 26),
    ],
)
def test_a_commit_makes_nothing_and_misses_nothing(
    desk: Desk, fields: dict[str, Any], code: int
) -> None:
    with pytest.raises(Refusal) as caught:
        desk.update(**fields)
    assert caught.value.code == code
    assert desk.offsets.count == 0


@pytest.mark.parametrize(
    ("queue_id", "taken"), [(-1, False), (0, True), (15, True), (16, False), (2**31 - 1, False)]
)
def test_only_queues_that_are_there_get_an_offset(desk: Desk, queue_id: int, taken: bool) -> None:
    if taken:
        desk.update(queue_id=queue_id)
    else:
        with pytest.raises(Refusal, match="is illegal"):
            desk.update(queue_id=queue_id)
    assert desk.offsets.count == int(taken)


def test_what_a_topic_had_or_a_group_has_keeps_its_offset(desk: Desk) -> None:
    desk.queues.bounds[20] = (0, 5)
    desk.offsets.commit("g", "t", 30, 1, 0)
    for queue_id in (20, 30):
        desk.update(queue_id=queue_id, commit_offset=4)
        assert desk.offsets.query("g", "t", queue_id) == 4


def test_the_bounds_of_a_queue_and_of_an_unknown_one(desk: Desk) -> None:
    for queue_id, first, end in ((1, 5, 10), (99, 0, 0)):
        asked = headers.GetMaxOffset(topic="t", queue_id=queue_id)
        answer = desk.processor.max_offset(asked, request(RequestCode.GET_MAX_OFFSET), desk.peer)
        assert answer.header == headers.GetMaxOffsetResponse(offset=end)
        wanted = headers.GetMinOffset(topic="t", queue_id=queue_id)
        answer = desk.processor.min_offset(wanted, request(RequestCode.GET_MIN_OFFSET), desk.peer)
        assert answer.header == headers.GetMinOffsetResponse(offset=first)


@pytest.mark.parametrize(
    ("boundary", "upper"),
    [
        (None, False),
        ("LOWER", False),
        ("lower", False),
        ("", False),
        ("UPPER", True),
        ("uPPer", True),
    ],
)
def test_a_time_is_looked_up_from_the_side_the_client_names(
    desk: Desk, boundary: str | None, upper: bool
) -> None:
    header = headers.SearchOffset(topic="t", queue_id=0, timestamp=123, boundary_type=boundary)
    command = request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    answer = desk.processor.search(header, command, desk.peer)
    assert isinstance(answer, Answer)
    assert answer.header == headers.SearchOffsetResponse(offset=7)
    assert desk.queues.searches == [(123, upper)]


@pytest.mark.parametrize(("queue_id", "at_ms"), [(0, 1_700_000_000_000), (2, -1), (99, -1)])
def test_the_age_of_the_oldest_message(desk: Desk, queue_id: int, at_ms: int) -> None:
    header = headers.GetEarliestMessageStoreTime(topic="t", queue_id=queue_id)
    command = request(RequestCode.GET_EARLIEST_MSG_STORETIME)
    answer = desk.processor.earliest_store_time(header, command, desk.peer)
    assert isinstance(answer, Answer)
    assert answer.header == headers.GetEarliestMessageStoreTimeResponse(timestamp=at_ms)
