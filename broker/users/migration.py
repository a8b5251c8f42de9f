"""Makes users of the accounts of ACL 1.0 (`migrateAuthFromV1Enabled`), who may no more than these.

Source: semantics §18.3 (AuthMigrator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.errors import Refusal
from aerobee.broker.users.acls import checked, info_of
from aerobee.broker.users.plain_acl import acl_of
from aerobee.broker.users.users import UserType
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.auth import UserInfo
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.users.acls import Acls
    from aerobee.broker.users.plain_acl import PlainAccount
    from aerobee.broker.users.users import Users


NOT_MIGRATED: Final = (
    "white addresses of plain_acl.yml are not taken over: clients there have to sign now"
)


def migrate(
    accounts: Iterable[PlainAccount], users: Users, acls: Acls
) -> tuple[list[PlainAccount], list[str]]:
    """Create the accounts that are no users yet, with their rights.

    Returns those, and every problem.
    """
    created, problems = [], []
    for account in accounts:
        name = account.access_key
        if users.get(name) is not None:
            continue
        kind = UserType.SUPER if account.admin else UserType.NORMAL
        try:
            check_names(account)
            users.create(UserInfo(username=name, password=account.secret.decode(), user_type=kind))
            acls.forget(name)
            policies = info_of(name, acl_of(account))
            if policies.policies:
                acls.update(name, finished(checked(policies)))
        except Refusal as error:
            problems.append(f"migrateAuthFromV1Enabled: account {name!r}: {error.remark}")
        created.append(account)
    return created, problems


def check_names(account: PlainAccount) -> None:
    """Refuse what would become a right on more than one name. Raises: Refusal."""
    for name in (*account.topics, *account.groups):
        if "*" in name:
            remark = f"{name!r} is a pattern in policies, and no name in plain_acl.yml"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
