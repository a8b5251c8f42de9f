"""Accounts of ACL 1.0 as users with policies: they decide as the rules of ACL 1.0 say."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.broker.access.authority import AccessQuery
from aerobee.broker.access.permissions import PERMISSIONS, Action, Kind, Need
from aerobee.broker.access.plain_authority import PlainAuthority, has_lost
from aerobee.broker.access.white_addresses import NO_ADDRESSES, WhiteAddresses
from aerobee.broker.users.plain_acl import DENY, Perm, PlainAccount, plain_table

HERE: Final = ip_address("10.0.0.1")
CODE: Final = 17
OPEN: Final = "RMQ_SYS_TRACE_TOPIC"
NAMES: Final = ("a", "ab", OPEN, "other")
BOTH: Final = Perm.PUB | Perm.SUB
PERMS: Final = st.sampled_from([DENY, Perm.PUB, Perm.SUB, BOTH])
LISTS: Final = st.dictionaries(st.sampled_from((*NAMES[:3], "a*", "x y")), PERMS)
ACCOUNTS: Final = st.builds(
    PlainAccount,
    access_key=st.just("the-shop"),
    secret=st.sampled_from([b"a-secret-1", b"a-secret-2"]),
    white=st.sampled_from([NO_ADDRESSES, WhiteAddresses(["10.0.0.7"])]),
    admin=st.booleans(),
    default_topic=PERMS,
    default_group=PERMS,
    topics=LISTS,
    groups=LISTS,
)
ACTIONS: Final = sorted(
    {
        actions
        for row in PERMISSIONS.values()
        for actions in (row.cluster, row.unnamed, *(named.actions for named in row.named))
        if actions
    },
    key=sorted,
)
"""What requests do with resources, as the table of permissions has it."""
NEEDS: Final = st.builds(
    Need,
    st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from(ACTIONS),
) | st.builds(Need, st.just(Kind.CLUSTER), st.just("C"), st.sampled_from(ACTIONS))


def perm_on(name: str, kind: Kind, account: PlainAccount) -> Perm:
    """What an account may do with a topic or group: what is listed, else its default."""
    of_group = kind is Kind.GROUP
    listed = (account.groups if of_group else account.topics).get(name)
    default = account.default_group if of_group else account.default_topic
    return listed if listed is not None else BOTH if account.admin else default


def rule_of_acl_1(account: PlainAccount, needs: list[Need]) -> str | None:
    """Why a request is refused; None: it is not."""
    for kind, _, actions in needs:
        changes = bool(actions & {"Create", "Update", "Delete"}) and "Sub" not in actions
        if (kind is Kind.CLUSTER or changes) and not account.admin:
            return f"Need admin permission for request code={CODE}, but accessKey=the-shop is not"
    for kind, name, actions in needs:
        if kind is Kind.CLUSTER or actions >= {"Pub", "Sub"}:
            continue
        wanted = Perm.PUB if "Pub" in actions else Perm.SUB if "Sub" in actions else BOTH
        if wanted is BOTH and not actions & {"Get", "List"}:
            continue
        if kind is Kind.TOPIC and name == OPEN and wanted is Perm.PUB and account.has_rights:
            continue
        if not wanted & perm_on(name, kind, account):
            listed = name in (account.groups if kind is Kind.GROUP else account.topics)
            group = "group:" if kind is Kind.GROUP else ""
            return f"No {'' if listed else 'default '}permission for {group}{name}"
    return None


def authority_of(account: PlainAccount) -> PlainAuthority:
    authority = PlainAuthority()
    authority.replace(plain_table([account], NO_ADDRESSES, (OPEN,)))
    return authority


SEES_OPEN: Final = Need(Kind.TOPIC, OPEN, frozenset({Action.GET}))
READER: Final = PlainAccount(access_key="the-shop", secret=b"a-secret-1", default_group=Perm.SUB)


@given(ACCOUNTS, st.lists(NEEDS, max_size=3))
@example(READER, [SEES_OPEN])
@example(replace(READER, topics={OPEN: DENY}), [SEES_OPEN])
def test_policies_made_of_an_account_decide_and_say_why_as_acl_1_does(
    account: PlainAccount, needs: list[Need]
) -> None:
    authority = authority_of(account)
    signer = authority.account("the-shop")
    assert signer is not None
    remark = authority.objection(signer, AccessQuery(CODE, needs, HERE))
    assert remark == rule_of_acl_1(account, needs)


@given(ACCOUNTS, ACCOUNTS)
def test_an_account_has_lost_what_it_may_not_do_any_more(
    before: PlainAccount, after: PlainAccount
) -> None:
    kinds = ((Kind.TOPIC, before.topics, after.topics), (Kind.GROUP, before.groups, after.groups))
    fewer = any(
        rights(name, kind, before) & ~rights(name, kind, after)
        for kind, listed, relisted in kinds
        for name in {"unlisted", *listed, *relisted}
        if not name.endswith("*")
    )
    white = bool(before.white) and before.white.patterns != after.white.patterns
    lost = fewer or white or before.secret != after.secret or (before.admin and not after.admin)
    tables = (plain_table([account], NO_ADDRESSES, (OPEN,)) for account in (before, after))
    assert has_lost("the-shop", *tables) is lost


def rights(name: str, kind: Kind, account: PlainAccount) -> Perm:
    """The rights with that to send traces."""
    sends = kind is Kind.TOPIC and name == OPEN and account.has_rights
    return perm_on(name, kind, account) | (Perm.PUB if sends else DENY)


def test_a_name_with_an_asterisk_is_no_pattern() -> None:
    account = PlainAccount(access_key="the-shop", secret=b"a-secret-1", topics={"orders*": BOTH})
    authority = authority_of(account)
    signer = authority.account("the-shop")
    assert signer is not None
    need = Need(Kind.TOPIC, "orders-eu", frozenset(ACTIONS[0]))
    assert authority.objection(signer, AccessQuery(CODE, [need], HERE)) is not None
