"""The shares of a group: the check values of the Java client, and what must hold for any group."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.allocation import (
    average,
    by_config,
    circle,
    consistent_hash,
    machine_room_nearby,
    strategy,
)
from aerobee.client.send_result import MessageQueue
from aerobee.errors import ConfigurationError
from tests.kit.allocations import NAMES, Case, named, shares

OF_JAVA = Path(__file__).with_name("allocations_of_java.jsonl")
"""What the classes of RocketMQ 5.4.0 gave; tests/interop asks them again."""

QUEUES = [MessageQueue("T", f"broker-{b}", q) for b in "ab" for q in range(4)]
MEMBERS = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]


def test_average_gives_what_the_java_client_gives() -> None:
    shares = [average("g", member, QUEUES, MEMBERS) for member in MEMBERS]
    assert shares == [QUEUES[0:3], QUEUES[3:6], QUEUES[6:8]]


def test_the_check_values_of_the_specification() -> None:
    shares = [consistent_hash("g", member, QUEUES, MEMBERS) for member in MEMBERS]
    assert shares == [[QUEUES[3]], [QUEUES[2]], [*QUEUES[:2], *QUEUES[4:]]]
    assert circle("g", MEMBERS[1], QUEUES, MEMBERS) == [QUEUES[1], QUEUES[4], QUEUES[7]]


@pytest.mark.parametrize("line", OF_JAVA.read_text().splitlines(), ids=range(30))
def test_every_strategy_gives_what_the_java_classes_gave(line: str) -> None:
    written = json.loads(line)
    given = written.pop("shares")
    assert shares(Case(**written)) == given


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_is_not_listed_gets_nothing(name: str) -> None:
    assert named(name)("g", "10.0.0.9@9", QUEUES, MEMBERS) == []


def test_given_queues_are_taken_whoever_else_is_there() -> None:
    mine = by_config(QUEUES[5], MessageQueue("T", "gone", 0))
    assert mine("g", "anybody", QUEUES, MEMBERS) == [QUEUES[5]]


def test_who_has_no_room_is_an_error() -> None:
    nearby = machine_room_nearby("AVG", lambda queue: "", lambda client_id: "east")
    with pytest.raises(ConfigurationError, match="has no machine room"):
        nearby("g", MEMBERS[0], QUEUES, MEMBERS)


@given(queues=st.integers(0, 40), members=st.integers(1, 20))
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one(
    queues: int, members: int
) -> None:
    all_queues = [MessageQueue("T", "b", q) for q in range(queues)]
    ids = [f"c{m:02}" for m in range(members)]
    shares = [average("g", member, all_queues, ids) for member in ids]
    assert [queue for share in shares for queue in share] == all_queues
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


def test_strategies_are_known_by_name() -> None:
    assert strategy("AVG") is average
    assert strategy(average) is average
    with pytest.raises(ConfigurationError, match="there are: AVG"):
        strategy("BEST")
