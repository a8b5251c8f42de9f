"""Answers the gate from the tables of users and policies. Source: semantics §18.3
(DefaultAuthenticationProvider, DefaultAuthorizationProvider).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.access.auth_config import codes_of
from aerobee.broker.users.users import Account
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from aerobee.broker.access import authority
    from aerobee.broker.access.auth_config import AuthConfig
    from aerobee.broker.access.authority import AccessQuery, Host
    from aerobee.broker.access.permissions import Need
    from aerobee.broker.users.acls import Acls
    from aerobee.broker.users.policies import Entry
    from aerobee.broker.users.users import Users

NOBODY: Final = "username cannot be null."
NOT_SIGNED: Final = "check signature failed."


class UserAuthority:
    """An `Authority`: the users with their secrets, and the policies."""

    def __init__(self, users: Users, acls: Acls, config: AuthConfig) -> None:
        self._acls = acls
        self._config = config
        self._unrestricted = codes_of(config.authorization_whitelist)
        self._open = codes_of(config.authentication_whitelist)
        if config.authorization_enabled:
            # Without a signature it is nobody's request, so no policy can allow it.
            self._open &= self._unrestricted
        self.account = users.account

    def admits(self, host: Host) -> bool:
        """No address takes the place of an account."""
        return False

    def opens(self, code: int) -> bool:
        """Whether such a request needs no account."""
        return code in self._open

    def nobody(self, secret: bytes) -> Account:
        """A user without rights."""
        return Account("", secret, is_super=False)

    def trusts(self, account: authority.Account, host: Host) -> bool:
        """No address takes the place of a signature."""
        return False

    def objection(self, account: authority.Account, asked: AccessQuery) -> str | None:
        """Why the user may not do that; None: it may."""
        assert isinstance(account, Account)
        if account.is_super or not self._config.authorization_enabled:
            return None
        if asked.code in self._unrestricted:
            return None
        for need in asked.needs:
            entry = self.deciding(account.access_key, need, asked.host)
            if entry is None or not entry.allows:
                why = "no matched policies." if entry is None else "the decision is deny."
                return (
                    f"User:{account.access_key} has no permission to access"
                    f" {need.kind}:{need.name} from {asked.host}, {why}"
                )
        return None

    def deciding(self, name: str, need: Need, host: Host) -> Entry | None:
        """The entry that decides over one need of a normal user."""
        return self._acls.deciding(name, f"{need.kind}:{need.name}", need.actions, host)

    def refusal(self, remark: str) -> Answer:
        """NO_PERMISSION, as clients of 5.3 know it."""
        return Answer(int(ResponseCode.NO_PERMISSION), remark=remark)

    def not_authenticated(self, access_key: str) -> str:
        """The same for an unknown user, a wrong secret and a disabled user (the Java broker tells
        them apart).
        """
        return NOT_SIGNED if access_key else NOBODY
