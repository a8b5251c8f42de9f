"""A master of another cluster or name is named, whatever its settings hold besides."""

from __future__ import annotations

import pytest

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.replication.group_names import other_group

OWN = BrokerOptions(broker_name="a", broker_cluster_name="C")


@pytest.mark.parametrize(
    "settings",
    [
        b"brokerName=a\nbrokerClusterName=C\nbrokerId=0\n",
        b" brokerName = a \r\nbrokerClusterName=C\r\n",
        b"",
        b"\xff\xfe\nno pair\n=\n",
        b"brokerName=a",
    ],
)
def test_the_own_group_and_what_says_no_names_pass(settings: bytes) -> None:
    assert other_group(settings, OWN) == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (b"brokerName=b\nbrokerClusterName=C", "brokerName is b there and a here."),
        (b"brokerName=a\nbrokerClusterName=D", "brokerClusterName is D there and C here."),
        (
            b"brokerName=\nbrokerClusterName=D",
            "brokerClusterName is D there and C here, brokerName is  there and a here.",
        ),
    ],
)
def test_another_one_is_named(settings: bytes, said: str) -> None:
    problem = other_group(settings, OWN)
    assert said in problem
    assert "Set haMasterAddress" in problem


def test_a_long_name_is_cut() -> None:
    assert len(other_group(b"brokerName=" + b"x" * 100_000, OWN)) < 500
