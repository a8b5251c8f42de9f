"""The authority: which account signs a request, and what its policies allow.

Accounts and policies come from the tables of users (ACL 2.0), or are made of `plain_acl.yml`
(ACL 1.0, see `plain_authority`, which has other needs and other texts). Nothing here waits. Source:
semantics §18.3 (DefaultAuthenticationProvider, DefaultAuthorizationProvider).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.access.policies import deciding
from aerobee.broker.access.white_addresses import NO_ADDRESSES, WhiteAddresses
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aerobee.broker.access.permissions import Need
    from aerobee.broker.access.policies import Entry, Policy
    from aerobee.broker.access.white_addresses import Host


NOBODY: Final = "username cannot be null."
NOT_SIGNED: Final = "check signature failed."


class Account(NamedTuple):
    """Somebody who may sign requests. `white`: addresses from which it need not."""

    access_key: str
    secret: bytes
    is_super: bool = False
    white: WhiteAddresses = NO_ADDRESSES

    def __repr__(self) -> str:
        """Without the secret, which no log line and no traceback may have."""
        return f"Account({self.access_key!r})"


class AccessQuery(NamedTuple):
    """A request of a known account: its code, what it needs, where it comes from."""

    code: int
    needs: Sequence[Need]
    host: Host


class Authority:
    """Decides over requests. `account` is the enabled account of an access key, `policies` those of
    an account, in the order in which they are asked.
    """

    white = NO_ADDRESSES
    """Addresses from which no request needs an account."""

    def __init__(
        self,
        account: Callable[[str], Account | None],
        policies: Callable[[str], Sequence[Policy]],
        *,
        open_codes: frozenset[int] = frozenset(),
        unrestricted: frozenset[int] = frozenset(),
        restricts: bool = True,
    ) -> None:
        """`open_codes` need no account, and `unrestricted` ones no policy; without `restricts` none
        does.
        """
        self.account = account
        self.policies = policies
        self._unrestricted = unrestricted
        self._restricts = restricts
        # Without a signature it is nobody's request, so no policy can allow it.
        self._open = open_codes & unrestricted if restricts else open_codes

    def admits(self, host: Host) -> bool:
        """Whether no request from there needs an account."""
        return bool(self.white) and self.white.covers(host)

    def opens(self, code: int) -> bool:
        """Whether such a request needs no account."""
        return code in self._open

    def trusts(self, account: Account, host: Host) -> bool:
        """Whether requests of the account need no signature when they come from there."""
        return bool(account.white) and account.white.covers(host)

    def objection(self, account: Account, query: AccessQuery) -> str | None:
        """Why the account may not do that; None: it may."""
        if account.is_super or not self._restricts or query.code in self._unrestricted:
            return None
        for need in self.needs(query):
            entry = self.deciding(account.access_key, need, query.host)
            if entry is None or not entry.allows:
                return self.denial(account, query, need, entry)
        return None

    def deciding(self, name: str, need: Need, host: Host) -> Entry | None:
        """The entry that decides over one need of an account; None: no entry matches."""
        return deciding(self.policies(name), f"{need.kind}:{need.name}", need.actions, host)

    def needs(self, query: AccessQuery) -> Iterable[Need]:
        """The rights that a request needs, in the order in which they are checked."""
        return query.needs

    def denial(self, account: Account, query: AccessQuery, need: Need, entry: Entry | None) -> str:
        """Why a need is not met."""
        why = "no matched policies." if entry is None else "the decision is deny."
        return (
            f"User:{account.access_key} has no permission to access"
            f" {need.kind}:{need.name} from {query.host}, {why}"
        )

    def refusal(self, remark: str) -> Answer:
        """The answer to a request that is refused: NO_PERMISSION, as clients of 5.3 know it."""
        return Answer(int(ResponseCode.NO_PERMISSION), remark=remark)

    def not_authenticated(self, access_key: str) -> str:
        """The one remark for an unknown account, a wrong secret and a disabled account (the Java
        broker tells them apart). An empty `access_key`: the request carries none.
        """
        return NOT_SIGNED if access_key else NOBODY
