"""Whether the broker that a slave is told to follow is of its own group: cluster and name. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aerobee.broker.config.settings.broker import BrokerOptions

KEYS: Final = ("brokerClusterName", "brokerName")
SHOWN: Final = 127
"""Characters of a foreign name that are repeated."""


def other_group(properties: bytes, own: BrokerOptions) -> str:
    """What is wrong with the master's names, in words; empty: they are those of the slave.

    `properties` are the master's settings, a line each. A name that they lack is not compared.
    """
    lines = (line.partition("=") for line in properties.decode("utf-8", "replace").splitlines())
    theirs = {key.strip(): value.strip() for key, _, value in lines}
    mine = dict(zip(KEYS, (own.broker_cluster_name, own.broker_name), strict=True))
    wrong = [key for key in KEYS if theirs.get(key, mine[key]) != mine[key]]
    if not wrong:
        return ""
    names = ", ".join(f"{key} is {theirs[key][:SHOWN]} there and {mine[key]} here" for key in wrong)
    return (
        f"the master is of another group: {names}. Set haMasterAddress to the right broker, or"
        " these names to those of the master"
    )
