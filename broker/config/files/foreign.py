"""Keys without effect in this version: RocketMQ's without a setting here, and reserved ones.

Most are only kept. A key whose value asks for a missing feature is refused, so that a file never
promises a feature that the broker lacks. Source: configuration §2.3, §3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.schema import KNOWN, canon

if TYPE_CHECKING:
    from collections.abc import Mapping

PLANNED: Mapping[str, str] = {canon(name): name for name in ("proxyProtocolFrom",)}
"""Keys of Aerobee that have no effect yet."""

OF_COMMANDS = (
    "context namespace accesskey secretkey securitytoken tls cafile certfile keyfile"
    " serverhostname usersecret"
)
ENVIRONMENT_ONLY = frozenset(("image", "pure", "ci", "testjava", "namesrv", *OF_COMMANDS.split()))
"""`AEROBEE_…` variables that are known but not settings of the broker: those of the image and of
the tests, and those of commands, which a shell may have set for all that it starts.
"""

OFF = frozenset({"", "false"})
HARMLESS: Mapping[str, frozenset[str]] = {
    canon(name): values
    for values, names in (
        (
            OFF,
            "enableDLegerCommitLog duplicationEnable enableLmq"
            " enableMultiDispatch timerRocksDBEnable transRocksDBEnable indexRocksDBEnable"
            " fetchNamesrvAddrByAddressServer"
            " fetchNameSrvAddrByDnsLookup proxyProtocolFrom enableSlaveActingMaster"
            " enableRemoteEscape",
        ),
        (frozenset({"", "default"}), "storeType"),
    )
    for name in names.split()
}
"""Canonical name → the values that ask for no feature and are accepted."""

INSTEAD: Mapping[str, str] = dict.fromkeys(
    map(canon, ("enableSlaveActingMaster", "enableRemoteEscape")),
    "a slave keeps delays, timers and pops for its master, or for itself once `aerobee ha promote`"
    " has made it the master",
)
"""Canonical name → what this broker does in place of the feature."""


def known_name(name: str) -> str:
    """The proper spelling of a known key without a setting; empty: the key is unknown."""
    return KNOWN.get(canon(name)) or PLANNED.get(canon(name), "")


def objection(name: str, text: str) -> str:
    """The reason why the value of such a key is refused; empty: it is accepted."""
    harmless = HARMLESS.get(canon(name))
    if harmless is None or text.strip().lower() in harmless:
        return ""
    reason = f"{text.strip()} asks for something that this broker does not do"
    instead = INSTEAD.get(canon(name), "")
    return f"{reason}: {instead}" if instead else reason
