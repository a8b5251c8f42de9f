"""The authority with the rules and texts of ACL 1.0: what it asks of a request, how it refuses.

A request that administers the broker needs an administrator, whose policies allow everything on the
cluster; each topic and group needs the right to publish or to subscribe. Stricter than RocketMQ in
three points: batches are checked as single messages are; whatever changes topics, groups or
settings, or reads settings, needs an administrator, not five request codes only; and what a topic
or group is, its clients and what they do, is seen by who has some right on it. Source: semantics
§18.2 (PlainPermissionManager).
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.access.authority import Authority
from aerobee.broker.access.permissions import Action, Kind, Need
from aerobee.broker.access.policies import Entry, PolicyType, deciding
from aerobee.broker.access.white_addresses import NO_ADDRESSES
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aerobee.broker.access.authority import AccessQuery, Account
    from aerobee.broker.access.permissions import Actions
    from aerobee.broker.access.policies import Policy
    from aerobee.broker.access.white_addresses import Host, WhiteAddresses
    from aerobee.remoting.server.channel import Channel


EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""Clients and tools look for the name of RocketMQ's class."""
NO_KEY: Final = "No accessKey is configured"
WRONG_SIGNATURE: Final = "Check signature failed for accessKey="
SHOWN_CHARACTERS: Final = 64
NOTHING: Final = frozenset[Action]()
PUBLISH: Final = frozenset({Action.PUB})
SUBSCRIBE: Final = frozenset({Action.SUB})
ANY_RIGHT: Final = PUBLISH | SUBSCRIBE
READS: Final = frozenset({Action.GET, Action.LIST})
CHANGES: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
ANYWHERE: Final = ip_address(0)
ADMINISTRATION: Final = Need(Kind.CLUSTER, "", CHANGES)


class PlainTable(NamedTuple):
    """All accounts and their policies by access key, and the addresses that need no account."""

    accounts: Mapping[str, Account]
    policies: Mapping[str, Sequence[Policy]]
    white: WhiteAddresses
    open_topics: frozenset[str] = frozenset()
    """Topics that each of `senders` may send to, whatever its policies say: as the trace topic."""
    senders: frozenset[str] = frozenset()
    """Accounts with any right."""

    def opens(self, account: str, need: Need) -> bool:
        """Whether a need is met without a policy: to send there, and nothing else."""
        sends = need.kind is Kind.TOPIC and need.actions == PUBLISH
        return sends and need.name in self.open_topics and account in self.senders


NO_ACCOUNTS: Final = PlainTable({}, {}, NO_ADDRESSES)
OPEN: Final = Entry("", PUBLISH, allows=True, sources=(), policy=PolicyType.DEFAULT)
"""Decides where the table opens a topic."""


class PlainAuthority(Authority):
    """The authority of ACL 1.0. `table` is replaced when the files have changed."""

    def __init__(self) -> None:
        super().__init__(NO_ACCOUNTS.accounts.get, NO_ACCOUNTS.policies.__getitem__)
        self.replace(NO_ACCOUNTS)

    def replace(self, table: PlainTable) -> None:
        """Decide by other accounts from now on."""
        self.table = table
        self.account = table.accounts.get
        self.policies = table.policies.__getitem__
        self.white = table.white

    def needs(self, query: AccessQuery) -> Iterator[Need]:
        """An administrator where one is needed, and the rights on topics and groups."""
        if any(map(administers, query.needs)):
            yield ADMINISTRATION
        for need in query.needs:
            actions = right(need)
            if actions:
                yield need._replace(actions=actions)

    def deciding(self, name: str, need: Need, host: Host) -> Entry | None:
        """The entry that decides over one need of an account; None: no entry matches."""
        return OPEN if self.table.opens(name, need) else super().deciding(name, need, host)

    def denial(self, account: Account, query: AccessQuery, need: Need, entry: Entry | None) -> str:
        """Why a need is not met."""
        if need is ADMINISTRATION:
            return (
                f"Need admin permission for request code={query.code},"
                f" but accessKey={account.access_key} is not"
            )
        listed = self.deciding(account.access_key, need._replace(actions=ANY_RIGHT), query.host)
        default = "" if listed is not None and listed.policy is PolicyType.CUSTOM else " default"
        group = "group:" if need.kind is Kind.GROUP else ""
        return f"No{default} permission for {group}{need.name}"

    def refusal(self, remark: str) -> Answer:
        """A system error, as RocketMQ answers it."""
        return Answer(int(ResponseCode.SYSTEM_ERROR), remark=EXCEPTION + remark)

    def not_authenticated(self, access_key: str) -> str:
        """The text for an unknown account, which is that for a wrong key."""
        if not access_key:
            return NO_KEY
        return WRONG_SIGNATURE + access_key[:SHOWN_CHARACTERS]


def administers(need: Need) -> bool:
    """Whether only an administrator may do it."""
    changes = not need.actions.isdisjoint(CHANGES) and Action.SUB not in need.actions
    return need.kind is Kind.CLUSTER or changes


def right(need: Need) -> Actions:
    """The rights of which one is needed: any to see what a topic or group is, none for a route."""
    publishes, subscribes = Action.PUB in need.actions, Action.SUB in need.actions
    if publishes != subscribes:
        return PUBLISH if publishes else SUBSCRIBE
    sees = not publishes and not need.actions.isdisjoint(READS)
    return ANY_RIGHT if sees and need.kind is not Kind.CLUSTER else NOTHING


class Losses(NamedTuple):
    """The rights that a change of the files took away: from accounts, and from addresses."""

    accounts: frozenset[str]
    before: PlainTable
    after: PlainTable

    @classmethod
    def between(cls, before: PlainTable, after: PlainTable) -> Losses:
        """The rights that the second table has not any more."""
        lost = (name for name in before.accounts if has_lost(name, before, after))
        return cls(frozenset(lost), before, after)

    def concern(self, connection: Channel) -> bool:
        """Whether requests that were allowed over a connection may not be any more."""
        if not self.accounts.isdisjoint(connection.accounts):
            return True
        host = ip_address(connection.host[:-4])
        return self.before.white.covers(host) and not self.after.white.covers(host)


def has_lost(name: str, before: PlainTable, after: PlainTable) -> bool:
    """Whether an account may do less than before, or has another key."""
    account, changed = before.accounts[name], after.accounts.get(name)
    if changed is None or changed.secret != account.secret:
        return True
    if account.white and account.white.patterns != changed.white.patterns:
        return True
    if before.open_topics and name in before.senders and name not in after.senders:
        return True
    policies, fewer = before.policies[name], after.policies[name]
    resources = {text for policy in (*policies, *fewer) for text in policy.resources}
    return any(
        allows(policies, text, action)
        and not allows(fewer, text, action)
        and not after.opens(name, Need(Kind.TOPIC, text.removeprefix(f"{Kind.TOPIC}:"), action))
        for text in resources
        for action in (PUBLISH, SUBSCRIBE)
    )


def allows(policies: Sequence[Policy], resource: str, action: Actions) -> bool:
    """Whether policies that name no address allow an action. A pattern stands for all that no other
    entry names.
    """
    entry = deciding(policies, resource, action, ANYWHERE)
    return entry is not None and entry.allows
