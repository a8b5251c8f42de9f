"""Every campaign at its small size. `make torture` runs the same ones for hours."""

from pathlib import Path

import pytest

from tests.faults.campaigns import CAMPAIGNS
from tests.faults.replica_kills import ONE_PAIR
from tests.kit.campaign import Campaign, execute

pytestmark = [pytest.mark.faults, pytest.mark.ours]


MEASURE_TIME = {"A1", "R11", "R23"}
"""Nothing runs beside them: R11 and R23 compare times by the clock, and A1 counts milliseconds of
CPU, which grow by half beside others on the same cores. Others that say how long something may take
take out for how long the broker waited for a core, or leave it room.
"""
ELSEWHERE = {"Q1", "J1", "F1J", "H1", "H2", "H3", "H4"}
"""Q1 shares the session of Spark's own tests; of J1 a choice runs in `tests/interop`; F1J says what
others lose; H1 to H4 are `ONE_PAIR`.
"""


def marks_of(campaign: Campaign) -> list[pytest.MarkDecorator]:
    java = [pytest.mark.interop] if campaign.java else []
    return [*java, pytest.mark.alone] if campaign.key in MEASURE_TIME else java


SERVICE = {"R8", "R9", "R10", "R11", "R15", "R16", "R17", "R18", "R23", "S16H"}
"""What a broker in the open is to stand; R19, the stop under load, is in `test_stop.py`."""


def test_what_a_service_stands_is_part_of_every_run_of_the_tests() -> None:
    """R8 to R11, R15 to R19, R23."""
    assert {one.key for one in CAMPAIGNS} - ELSEWHERE >= SERVICE


def test_the_keys_of_campaigns_are_their_own() -> None:
    keys = [campaign.key for campaign in CAMPAIGNS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "campaign",
    [
        pytest.param(one, id=one.key, marks=marks_of(one))
        for one in (*CAMPAIGNS, ONE_PAIR)
        if one.key not in ELSEWHERE
    ],
)
def test_campaign(campaign: Campaign, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    cycles = pytestconfig.getoption("--cycles") or campaign.t1
    outcome = execute(campaign, cycles, pytestconfig.getoption("--seed"), tmp_path)
    print(f"{campaign.key}: {outcome.executed} {campaign.unit}, {outcome.summary()}")
    outcome.check()
