"""Accounts of ACL 1.0 as users with policies: what `plain_acl.yml` says, for the one authority.

A listed right becomes an entry of the CUSTOM policy, a default right one of the DEFAULT policy on
all topics or groups. A right that a listed one lacks and the default would grant is denied in the
DEFAULT policy, since ACL 1.0 does not ask the default for what is listed. Source: semantics §18.2
(PlainPermissionManager), §18.3 (AuthMigrator).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import TYPE_CHECKING, Final

from aerobee.broker.access.authority import Account
from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.access.plain_authority import PlainTable
from aerobee.broker.access.policies import ALL, ANY_RESOURCE, PolicyType, compiled_policies
from aerobee.broker.access.white_addresses import NO_ADDRESSES, WhiteAddresses
from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aerobee.broker.access.policies import Acl


class Perm(IntFlag):
    """A right on topics or groups."""

    PUB = 4
    SUB = 8


DENY: Final = Perm(0)
BOTH: Final = Perm.PUB | Perm.SUB


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAccount:
    """One account of the file."""

    access_key: str
    secret: bytes = field(repr=False)
    white: WhiteAddresses = NO_ADDRESSES
    admin: bool = False
    default_topic: Perm = DENY
    default_group: Perm = DENY
    topics: Mapping[str, Perm] = field(default_factory=dict)
    groups: Mapping[str, Perm] = field(default_factory=dict)

    @property
    def has_rights(self) -> bool:
        """Whether it may do anything at all."""
        rights = (*self.topics.values(), *self.groups.values())
        return self.admin or any((self.default_topic, self.default_group, *rights))


def plain_table(
    accounts: Collection[PlainAccount], white: WhiteAddresses, open_topics: Collection[str] = ()
) -> PlainTable:
    """The table of the authority. `open_topics`: topics that every account with any right may send
    to, as the trace topic.
    """
    users, policies = {}, {}
    for account in accounts:
        name = account.access_key
        users[name] = Account(name, account.secret, white=account.white)
        if account.admin:
            # Lists bind administrators as well, so none of them is a super user.
            acl = acl_of(replace(account, default_topic=BOTH, default_group=BOTH))
            acl[PolicyType.DEFAULT].update(entries(ANY_RESOURCE, [ALL]))
        else:
            acl = acl_of(account)
        policies[name] = compiled_policies(acl)
    senders = frozenset(account.access_key for account in accounts if account.has_rights)
    return PlainTable(users, policies, white, frozenset(open_topics), senders)


def acl_of(account: PlainAccount) -> Acl:
    """The rights of an account as policies. A pattern is left out: no name has an asterisk."""
    custom: dict[str, PolicyEntryInfo] = {}
    default: dict[str, PolicyEntryInfo] = {}
    for kind, listed, others in (
        (Kind.TOPIC, account.topics, account.default_topic),
        (Kind.GROUP, account.groups, account.default_group),
    ):
        for name, perm in listed.items():
            if name.endswith("*"):
                continue
            resource = f"{kind}:{name}"
            custom |= entries(resource, names_of(perm)) or entries(resource, [ALL], "Deny")
            if perm:
                default |= entries(resource, names_of(others & ~perm), "Deny")
        default |= entries(f"{kind}:*", names_of(others))
    return {PolicyType.CUSTOM: custom, PolicyType.DEFAULT: default}


def entries(
    resource: str, actions: list[str], decision: str = "Allow"
) -> dict[str, PolicyEntryInfo]:
    """The entry of a resource; none without actions."""
    if not actions:
        return {}
    return {resource: PolicyEntryInfo(resource=resource, actions=actions, decision=decision)}


def names_of(perm: Perm) -> list[str]:
    """The actions of a right."""
    actions = ((Perm.PUB, Action.PUB), (Perm.SUB, Action.SUB))
    return [action.value for bit, action in actions if bit & perm]
