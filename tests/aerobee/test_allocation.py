"""The shares of a group: the check values of the Java client, and what must hold for any group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.allocation import average, strategy
from aerobee.client.message import MessageQueue
from aerobee.errors import ConfigurationError

QUEUES = [MessageQueue("T", f"broker-{b}", q) for b in "ab" for q in range(4)]
MEMBERS = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]


def test_average_gives_what_the_java_client_gives() -> None:
    shares = [average("g", member, QUEUES, MEMBERS) for member in MEMBERS]
    assert shares == [QUEUES[0:3], QUEUES[3:6], QUEUES[6:8]]


def test_a_member_that_is_not_listed_gets_nothing() -> None:
    assert average("g", "10.0.0.9@9", QUEUES, MEMBERS) == []


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
