"""Keys that mean something elsewhere: RocketMQ's that have no effect here, and ours of later.

Most are only kept. Those whose value asks for something that is not done are refused, so that a
file never promises what the broker does not do. Source: configuration §2.3, §3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.schema import KNOWN, canon

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENVIRONMENT_ONLY", "PLANNED", "known_name", "objection"]

PLANNED: Mapping[str, str] = {
    canon(name): name
    for name in (
        "metricsLegacyNames",
        "proxyProtocolFrom",
        "tlsServerMode",
    )
}
"""Keys of our own that have no effect yet."""

ENVIRONMENT_ONLY = frozenset({"image", "pure", "ci", "loglevel", "testjava", "namesrv"})
"""`AEROBEE_…` variables that are known and no settings of the broker."""

OFF = frozenset({"", "false"})
HARMLESS: Mapping[str, frozenset[str]] = {
    canon(name): values
    for values, names in (
        (
            OFF,
            "enableDLegerCommitLog enableControllerMode duplicationEnable enableLmq"
            " enableMultiDispatch timerRocksDBEnable transRocksDBEnable indexRocksDBEnable"
            " aclEnable authenticationEnabled authorizationEnabled useTLS"
            " fetchNamesrvAddrByAddressServer"
            " fetchNameSrvAddrByDnsLookup metricsLegacyNames proxyProtocolFrom",
        ),
        (frozenset({"", "default"}), "storeType"),
        (frozenset({"", "disabled", "permissive"}), "tlsServerMode"),
    )
    for name in names.split()
}
"""Canonical name → the values that ask for nothing."""


def known_name(name: str) -> str:
    """The proper spelling of a key that is known but no setting; empty: it is not."""
    return KNOWN.get(canon(name)) or PLANNED.get(canon(name), "")


def objection(name: str, text: str) -> str:
    """Why the value of such a key is refused; empty: it is not."""
    harmless = HARMLESS.get(canon(name))
    if harmless is None or text.strip().lower() in harmless:
        return ""
    return f"{text.strip()} asks for something that this broker does not do"
