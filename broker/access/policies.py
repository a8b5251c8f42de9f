"""Policies of one user: checked when they come, compiled once, and asked with every request.

A request asks for some actions on one resource. Of the entries that match resource, action and
source address the most specific one decides; entries of the CUSTOM policy come before those of the
DEFAULT one, and without any match the answer is no. A compiled policy is one look-up per kind of
resource and length of prefix, however many entries there are. Source: semantics §18.3
(AclAuthorizationHandler, PolicyEntry, Resource).
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aerobee.broker.access.permissions import Action
from aerobee.broker.errors import NoPermission, Refusal
from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from ipaddress import IPv4Network, IPv6Network

    from aerobee.broker.access.white_addresses import Host

    Network: TypeAlias = IPv4Network | IPv6Network


MAPPED_BITS: Final = 96
"""The bits of an IPv6 address in front of the IPv4 address that it maps."""
SOURCES_MAX: Final = 64
"""Addresses and networks of one entry; each costs a comparison per request."""
NAME: Final = re.compile(r"[%|a-zA-Z0-9_.@-]{1,255}")
ANY_RESOURCE: Final = "*"


ALL: Final = "All"
ACTIONS: Final[Mapping[str, tuple[str, frozenset[Action]]]] = {
    ALL.lower(): (ALL, frozenset(Action)),
    **{action.lower(): (action.value, frozenset({action})) for action in Action},
}
"""The name in any case → the name as it is written, and what it grants."""


TYPES: Final = {name.lower(): name for name in ("Cluster", "Namespace", "Topic", "Group")}
"""The type of a resource in any case → as it is written."""


class PolicyType(StrEnum):
    """The two policies of a user, in the order in which they are asked."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


Acl: TypeAlias = "dict[PolicyType, dict[str, PolicyEntryInfo]]"
"""The entries of a user's policies: policy → resource → entry."""


class Entry(NamedTuple):
    """A compiled entry. `resource` is its text, for people; no `sources` means all addresses."""

    resource: str
    actions: frozenset[Action]
    allows: bool
    sources: tuple[Network, ...]
    policy: PolicyType


# ── What may be written ──


def policy_type_of(text: str | None) -> PolicyType:
    """The policy that a request names; CUSTOM when it names none. Raises: Refusal."""
    for kind in PolicyType:
        if not text or text.lower() == kind.lower():
            return kind
    raise Refusal(
        ResponseCode.INVALID_PARAMETER, f"The policy type {text!r:.60} is unknown: Custom, Default"
    )


def checked_resource(text: str | None) -> str:
    """A resource as it is written: `Topic:name`, `Topic:prefix*`, `Topic:*` or `*`.

    Raises: NoPermission, as the Java broker, where there is no such type; Refusal for a bad name.
    """
    if text == ANY_RESOURCE:
        return ANY_RESOURCE
    kind, _, name = (text or "").partition(":")
    if kind.lower() not in TYPES:
        raise NoPermission("The resource is null.")
    if name != ANY_RESOURCE and not NAME.fullmatch(name.removesuffix("*")):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The resource {text!r:.80} has no legal name: letters, digits and %|_.@- with one"
            " asterisk at the end at most",
        )
    return f"{TYPES[kind.lower()]}:{name}"


def checked_entry(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    """The entry in its canonical spelling. Raises: NoPermission, as the Java broker; Refusal."""
    decision = (entry.decision or "").capitalize()
    resource = checked_resource(entry.resource)
    actions = checked_actions(entry.actions or ())
    sources = [checked_source(source) for source in entry.source_ips or ()]
    if len(sources) > SOURCES_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"An entry has {len(sources)} source ips, at most {SOURCES_MAX} are taken",
        )
    if decision not in ("Allow", "Deny"):
        raise NoPermission("The decision is null or illegal.")
    return PolicyEntryInfo(
        resource=resource, actions=actions, source_ips=sources or None, decision=decision
    )


def checked_actions(names: Iterable[str]) -> list[str]:
    """The names of actions, each once. Raises: NoPermission, as the Java broker; Refusal."""
    actions: dict[str, None] = {}
    for name in names:
        if name.lower() == "any":
            raise NoPermission("The actions can not be Any.")
        known = ACTIONS.get(name.strip().lower())
        if known is None:
            known_names = ", ".join(title for title, _ in ACTIONS.values())
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"The action {name!r:.40} is unknown: {known_names}",
            )
        actions[known[0]] = None
    if not actions:
        raise NoPermission("The actions is empty.")
    return list(actions)


def checked_source(text: str) -> str:
    """An address or network. Raises: NoPermission, as the Java broker."""
    text = text.strip()
    if not text:
        raise NoPermission("The source ip is empty.")
    try:
        # A zone ("fe80::1%eth0") is a name of this machine alone.
        if "%" in text:
            raise ValueError(text)
        ip_network(text, strict=False)
    except ValueError:
        raise NoPermission("The source ip is invalid.") from None
    return text


# ── What is asked with every request ──


class Policy:
    """The compiled entries of one type of policy."""

    def __init__(self, kind: PolicyType, entries: Iterable[PolicyEntryInfo]) -> None:
        self.literal: dict[str, list[Entry]] = {}
        self.prefixed: dict[str, list[Entry]] = {}
        self.lengths: tuple[int, ...] = ()
        """The lengths of the prefixes, type and colon included, longest first."""
        for info in entries:
            entry = compiled(kind, info)
            literal = not entry.resource.endswith("*")
            table = self.literal if literal else self.prefixed
            # Of those on the same resource, Deny is asked first.
            table.setdefault(entry.resource.removesuffix("*"), []).insert(
                len(table.get(entry.resource.removesuffix("*"), ())) if entry.allows else 0, entry
            )
        self.lengths = tuple(sorted({len(prefix) for prefix in self.prefixed}, reverse=True))

    def candidates(self, resource: str) -> Iterator[list[Entry]]:
        """The entries that match `resource`, such as `Topic:orders`, most specific first."""
        if (entries := self.literal.get(resource)) is not None:
            yield entries
        for length in self.lengths:
            if length <= len(resource):
                entries = self.prefixed.get(resource[:length])
                if entries is not None:
                    yield entries

    @property
    def resources(self) -> set[str]:
        """The resources of all entries, as they are written."""
        tables = (self.literal, self.prefixed)
        return {
            entry.resource for table in tables for entries in table.values() for entry in entries
        }

    def deciding(self, resource: str, actions: frozenset[Action], source: Host) -> Entry | None:
        """The entry that decides; None: no entry matches."""
        for entries in self.candidates(resource):
            for entry in entries:
                if not entry.actions.isdisjoint(actions) and comes_from(entry.sources, source):
                    return entry
        return None


def compiled_policies(acl: Acl) -> list[Policy]:
    """The policies of a user in the order in which they are asked."""
    return [Policy(kind, acl[kind].values()) for kind in PolicyType if kind in acl]


def deciding(
    policies: Iterable[Policy], resource: str, actions: frozenset[Action], source: Host
) -> Entry | None:
    """The entry that decides whether a user may do one of `actions` on `Topic:orders` from an
    address; None: no entry matches, which is a no.
    """
    for policy in policies:
        entry = policy.deciding(resource, actions, source)
        if entry is not None:
            return entry
    return None


def compiled(kind: PolicyType, entry: PolicyEntryInfo) -> Entry:
    """The entry in the form that is asked. Raises: ValueError when it was not checked before."""
    granted = frozenset[Action]().union(*(ACTIONS[name.lower()][1] for name in entry.actions or ()))
    networks = tuple(map(network_of, entry.source_ips or ()))
    return Entry(entry.resource or "", granted, entry.decision == "Allow", networks, kind)


def network_of(source: str) -> Network:
    """The network that a source names. Raises: ValueError.

    Clients of IPv4 are known by their IPv4 addresses, however they came, so `::ffff:10.0.0.1` is
    10.0.0.1: as a network of IPv6 it would match nobody, and a Deny on it would deny nothing.
    """
    network = ip_network(source, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ip_network((mapped, network.prefixlen - MAPPED_BITS), strict=False)


def comes_from(networks: tuple[Network, ...], source: Host) -> bool:
    """Whether an address is in one of the networks; without networks each one is.

    `0.0.0.0/0` and `::/0` each mean every address, of IPv4 and of IPv6, as in the Java broker: a
    Deny on either leaves nobody out.
    """
    return not networks or any(not network.prefixlen or source in network for network in networks)
