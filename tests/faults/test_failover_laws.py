"""The decisions of a failover keep their laws under everything that can go wrong, in many walks.

And the walks find it when a law is left out: each fault that is planted is one that RocketMQ's
controller mode has had, or that an earlier version of this code had.
"""

import random
from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

import pytest

from tests.kit.failover_world import LawBroken, World

STEPS = 2_000
WALKS = 120
SEARCHED = 2_000


class Fault(NamedTuple):
    """A rule that is left out, the weather that shows it soonest, and a walk near which it does."""

    values: Mapping[str, bool]
    weather: Mapping[str, float]
    near: int
    said: str


FAULTS = {
    "the fence is checked before the wait, and not at the answer": Fault(
        {"checks_lease_at_answer": False},
        {"wake": 0.2, "tick": 2, "stop": 4, "look": 0.3, "answer": 0.5, "kill": 0.1},
        400,
        "acknowledges after epoch",
    ),
    "the set shrinks when a connection ends, before the record does": Fault(
        {"shrinks_before_commit": True}, {"lose_connection": 3}, 115, ""
    ),
    "a connection that is gone is not waited for": Fault(
        {"forgets_closed_connections": True}, {"lose_connection": 3}, 50, ""
    ),
    "the master's address comes from a name server": Fault(
        {"believes_name_servers": True}, {"look": 0.2}, 0, "has gone back from"
    ),
    "a member joins the set before it has the tables": Fault(
        {"joins_without_tables": True}, {"copy_tables": 0.02, "commit_offset": 3}, 0, "joined at"
    ),
    "a damaged member may become the master": Fault({"reads_log_through": False}, {}, 70, "lacks"),
    "an unchanged record is taken for a refusal": Fault(
        {"takes_read_for_no": True},
        {
            "give_up": 4,
            "arrive": 0.15,
            "change_set": 3,
            "partition": 0.3,
            "kill": 2,
            "lose_connection": 6,
            "stop": 0.3,
        },
        200,
        "",
    ),
    "a lease that was given back is renewed by a late answer": Fault(
        {"renews_after_end": True}, {"give_back": 10}, 40, "may acknowledge"
    ),
}


def broken(world: type[World], seed: int) -> str:
    """The law that a walk breaks, in words; empty: it breaks none."""
    try:
        world(random.Random(seed)).walk(STEPS)
    except LawBroken as law:
        return str(law)
    return ""


def test_no_walk_breaks_a_law_and_they_go_everywhere() -> None:
    been: Counter[str] = Counter()
    for seed in range(WALKS):
        world = World(random.Random(seed))
        world.walk(STEPS)
        been += world.counts
        been["elections"] += 0 if world.decider.record is None else world.decider.record.epoch
    least = {"elections": WALKS, "answer": 3 * WALKS, "change_set": 30, "damage": 10}
    assert {name for name, times in least.items() if been[name] < times} == set(), been
    assert all(been[name] for name in world.names), been


@pytest.mark.parametrize("name", FAULTS)
def test_walks_find_a_rule_that_is_left_out(name: str) -> None:
    fault = FAULTS[name]
    planted = type("Planted", (World,), {**fault.values, "weather": fault.weather})
    for seed in count(fault.near):
        assert seed < fault.near + SEARCHED, f"nothing was found in {SEARCHED} walks"
        if law := broken(planted, seed):
            break
    assert fault.said in law
    healthy = type("Healthy", (World,), {"weather": fault.weather})
    assert broken(healthy, seed) == ""
