"""ACL 1.0: accounts with rights on topics and groups, as RocketMQ's `plain_acl.yml` has them.

A request passes if it comes from a white address (of all, then of its account). Else it must be
signed; what administers the broker needs an account with `admin: true`; and each topic and group
that it uses needs the right that the account lists for it, or the default right of the account,
unless that is an administrator. Stricter than RocketMQ in three points: batches are checked as
single messages are; whatever changes topics, groups or settings, or reads settings, needs an
administrator, not five request codes only; and what a topic or group is, its clients and what they
do, is seen by who has some right on it. Source: semantics §18.2 (PlainPermissionManager).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aerobee.broker.access.authority import AccessQuery, Account, Host
    from aerobee.broker.access.permissions import Need
    from aerobee.remoting.server.connection import Connection

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""Clients and tools look for the name of RocketMQ's class."""
SHOWN_CHARACTERS: Final = 64
READS: Final = frozenset({Action.GET, Action.LIST})
ADMINISTERS: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


class Perm(IntFlag):
    """A right on topics or groups."""

    PUB = 4
    SUB = 8


DENY: Final = Perm(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAccount:
    """One account of the file."""

    access_key: str
    secret: bytes = field(repr=False)
    white: WhiteAddresses = field(default_factory=WhiteAddresses)
    admin: bool = False
    default_topic: Perm = DENY
    default_group: Perm = DENY
    topics: Mapping[str, Perm] = field(default_factory=dict)
    groups: Mapping[str, Perm] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclTable:
    """All accounts by access key, and the addresses that need none."""

    accounts: Mapping[str, PlainAccount]
    white: WhiteAddresses


NO_ACCOUNTS: Final = AclTable({}, WhiteAddresses())


class Losses(NamedTuple):
    """What a change of the files took away: from accounts, and from addresses."""

    accounts: frozenset[str]
    before: AclTable
    after: AclTable

    @classmethod
    def between(cls, before: AclTable, after: AclTable) -> Losses:
        """What the second table has not any more."""
        lost = (
            name
            for name, account in before.accounts.items()
            if has_lost(account, after.accounts.get(name))
        )
        return cls(frozenset(lost), before, after)

    def concern(self, connection: Connection) -> bool:
        """Whether requests that were allowed over a connection may not be any more."""
        if not self.accounts.isdisjoint(connection.accounts):
            return True
        host = ip_address(connection.host[:-4])
        return self.before.white.covers(host) and not self.after.white.covers(host)


def has_lost(before: PlainAccount, after: PlainAccount | None) -> bool:
    """Whether an account may do less than before, or has another key."""
    if after is None or after.secret != before.secret or (before.admin and not after.admin):
        return True
    if before.white and before.white.patterns != after.white.patterns:
        return True
    # The empty name stands for all that are not listed.
    return any(
        perm_on(name, kind, before) & ~perm_on(name, kind, after)
        for kind, names in (
            (Kind.TOPIC, {"", *before.topics, *after.topics}),
            (Kind.GROUP, {"", *before.groups, *after.groups}),
        )
        for name in names
    )


def perm_on(name: str, kind: Kind, account: PlainAccount) -> Perm:
    """What an account may do with a topic or group."""
    of_group = kind is Kind.GROUP
    listed = (account.groups if of_group else account.topics).get(name)
    if listed is not None:
        return listed
    if account.admin:
        return Perm.PUB | Perm.SUB
    return account.default_group if of_group else account.default_topic


class PlainAcl:
    """The authority of ACL 1.0. `table` is replaced when the files have changed.

    `open_topics`: topics that every account with any right may send to, as the trace topic.
    """

    def __init__(self, open_topics: Collection[str]) -> None:
        self.table = NO_ACCOUNTS
        self._open_topics = frozenset(open_topics)

    def admits(self, host: Host) -> bool:
        """Whether the address is white for all requests."""
        white = self.table.white
        return bool(white) and white.covers(host)

    def opens(self, code: int) -> bool:
        """No code is open to everybody."""
        return False

    def account(self, access_key: str) -> PlainAccount | None:
        """The account of this key."""
        return self.table.accounts.get(access_key)

    def nobody(self, secret: bytes) -> PlainAccount:
        """An account without rights."""
        return PlainAccount(access_key="", secret=secret)

    def trusts(self, account: Account, host: Host) -> bool:
        """Whether the address is white for the account."""
        assert isinstance(account, PlainAccount)
        return bool(account.white) and account.white.covers(host)

    def objection(self, account: Account, asked: AccessQuery) -> str | None:
        """Why the account may not do that."""
        assert isinstance(account, PlainAccount)
        if not account.admin and any(map(administers, asked.needs)):
            return (
                f"Need admin permission for request code={asked.code},"
                f" but accessKey={account.access_key} is not"
            )
        for need in asked.needs:
            wanted = right(need)
            is_open = wanted is Perm.PUB and need.name in self._open_topics
            if wanted and not (is_open and has_rights(account)):
                remark = lacking(account, need, wanted)
                if remark is not None:
                    return remark
        return None

    def refusal(self, remark: str) -> Answer:
        """A system error, as RocketMQ answers it."""
        return Answer(int(ResponseCode.SYSTEM_ERROR), remark=EXCEPTION + remark)

    def not_authenticated(self, access_key: str) -> str:
        """The same text for an unknown account and a wrong key."""
        if not access_key:
            return "No accessKey is configured"
        return f"Check signature failed for accessKey={access_key[:SHOWN_CHARACTERS]}"


def administers(need: Need) -> bool:
    """Whether only an administrator may do it."""
    changes = not need.actions.isdisjoint(ADMINISTERS) and Action.SUB not in need.actions
    return need.kind is Kind.CLUSTER or changes


def right(need: Need) -> Perm:
    """The rights of which one is needed: any to see what a topic or group is, none for a route."""
    publishes, subscribes = Action.PUB in need.actions, Action.SUB in need.actions
    if publishes != subscribes:
        return Perm.PUB if publishes else Perm.SUB
    sees = not publishes and not need.actions.isdisjoint(READS)
    return Perm.PUB | Perm.SUB if sees and need.kind is not Kind.CLUSTER else DENY


def has_rights(account: PlainAccount) -> bool:
    """Whether an account may do anything at all."""
    return (
        account.admin
        or bool(account.default_topic | account.default_group)
        or any(account.topics.values())
        or any(account.groups.values())
    )


def lacking(account: PlainAccount, need: Need, wanted: Perm) -> str | None:
    """Why the account lacks a right; None: it has it."""
    if wanted & perm_on(need.name, need.kind, account):
        return None
    of_group = need.kind is Kind.GROUP
    shown = f"group:{need.name}" if of_group else need.name
    if need.name in (account.groups if of_group else account.topics):
        return f"No permission for {shown}"
    return f"No default permission for {shown}"
