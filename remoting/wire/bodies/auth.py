"""Users and ACLs of RocketMQ 5.3, in bodies and in `users.json` and `acls.json`.

Absent members are not written. Source: admin §2 (UserInfo, AclInfo).
"""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body


class UserInfo(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """One user. `user_type`: Super or Normal; `user_status`: enable or disable."""

    username: str = ""
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        """Without the password, which no log line and no traceback may have."""
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(
    Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True
):
    """The actions that are allowed or denied on one resource: `Topic:orders`, `Group:a*`, `Topic:*`
    or `*`.

    `source_ips`: addresses and networks (CIDR) for which it counts, none for all.
    """

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(
    Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True
):
    """Entries that are asked together. `policy_type`: Custom, or Default, which is asked last."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The policies of one subject, which is `User:` and the name."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class UserTable(Body, msgspec.Struct, kw_only=True):
    """The content of `users.json`."""

    users: list[UserInfo]


class AclTable(Body, msgspec.Struct, kw_only=True):
    """The content of `acls.json`."""

    acls: list[AclInfo]
