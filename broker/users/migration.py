"""Makes users and policies of the accounts of ACL 1.0 (`migrateAuthFromV1Enabled`).

A listed right becomes an entry of the CUSTOM policy, a default right one of the DEFAULT policy on
all topics or groups. A user may no more than the account: what a listed right lacks and the default
would grant is denied in the DEFAULT policy, which the Java broker leaves open. Source: semantics
§18.2, §18.3 (AuthMigrator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.access.plain_acl import Perm
from aerobee.broker.errors import Refused
from aerobee.broker.users.policies import ALL, PolicyType
from aerobee.broker.users.users import SUBJECT_PREFIX, UserType
from aerobee.remoting.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from aerobee.broker.access.plain_acl import AclTable, PlainAccount
    from aerobee.broker.users.acls import Acls
    from aerobee.broker.users.users import Users

ACTIONS: Final = ((Perm.PUB, Action.PUB), (Perm.SUB, Action.SUB))
NOT_MIGRATED: Final = (
    "white addresses of plain_acl.yml are not taken over: clients there have to sign now"
)


def migrate(table: AclTable, users: Users, acls: Acls) -> tuple[list[str], list[str]]:
    """Create the accounts that are no users yet, with their rights.

    Returns their names, and every problem.
    """
    created, problems = [], []
    for name, account in table.accounts.items():
        if users.get(name) is not None:
            continue
        kind = UserType.SUPER if account.admin else UserType.NORMAL
        user = UserInfo(username=name, password=account.secret.decode(), user_type=kind)
        try:
            users.create(user)
            acls.forget(name)
            policies = policies_of(account)
            if policies:
                for _ in acls.update(
                    name, AclInfo(subject=SUBJECT_PREFIX + name, policies=policies)
                ):
                    pass
        except Refused as error:
            problems.append(f"migrateAuthFromV1Enabled: account {name!r}: {error.remark}")
        created.append(name)
    return created, problems


def policies_of(account: PlainAccount) -> list[PolicyInfo]:
    """The rights of an account as policies; none without rights. Raises: Refused."""
    custom: list[PolicyEntryInfo] = []
    default: list[PolicyEntryInfo] = []
    for kind, listed, others in (
        (Kind.TOPIC, account.topics, account.default_topic),
        (Kind.GROUP, account.groups, account.default_group),
    ):
        for name, perm in listed.items():
            if "*" in name:
                remark = f"{name!r} is a pattern in policies, and no name in plain_acl.yml"
                raise Refused(ResponseCode.INVALID_PARAMETER, remark)
            resource = f"{kind}:{name}"
            custom.append(allowed(resource, perm) if perm else denied(resource, [ALL]))
            if others & ~perm and perm:
                default.append(denied(resource, names_of(others & ~perm)))
        if others:
            default.append(allowed(f"{kind}:*", others))
    policies = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
    return [PolicyInfo(policy_type=kind, entries=found) for kind, found in policies if found]


def allowed(resource: str, perm: Perm) -> PolicyEntryInfo:
    """An entry that grants a right."""
    return PolicyEntryInfo(resource=resource, actions=names_of(perm), decision="Allow")


def denied(resource: str, actions: list[str]) -> PolicyEntryInfo:
    """An entry that denies actions."""
    return PolicyEntryInfo(resource=resource, actions=actions, decision="Deny")


def names_of(perm: Perm) -> list[str]:
    """The actions of a right."""
    return [action.value for one, action in ACTIONS if one & perm]
