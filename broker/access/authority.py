"""What the gate asks: who an access key is, and what that account may do.

One implementation reads RocketMQ's `plain_acl.yml` (`plain_acl`), the other keeps users and
policies.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.access.permissions import Need
    from aerobee.remoting.wire.answer import Answer

Host: TypeAlias = IPv4Address | IPv6Address
"""The address that a request comes from; IPv4 through a dual-stack socket is IPv4."""


class Account(Protocol):
    """Somebody who may sign requests."""

    @property
    def access_key(self) -> str:
        """Its name on the wire."""

    @property
    def secret(self) -> bytes:
        """The key of its signatures, which no answer and no log line ever contains."""


class AccessQuery(NamedTuple):
    """A request of a known account: its code, what it needs, where it comes from."""

    code: int
    needs: Sequence[Need]
    host: Host


class Authority(Protocol):
    """Knows accounts and their rights. Nothing here waits."""

    def admits(self, host: Host) -> bool:
        """Whether no request from there needs an account."""

    def opens(self, code: int) -> bool:
        """Whether such a request needs no account."""

    def account(self, access_key: str) -> Account | None:
        """The enabled account of this name."""

    def nobody(self, secret: bytes) -> Account:
        """An account that stands for the unknown ones, with a secret that no one knows."""

    def trusts(self, account: Account, host: Host) -> bool:
        """Whether requests of the account need no signature when they come from there."""

    def objection(self, account: Account, asked: AccessQuery) -> str | None:
        """Why the account may not do that; None: it may."""

    def refusal(self, remark: str) -> Answer:
        """The answer to a request that is refused, in the form that clients of its kind know."""

    def not_authenticated(self, access_key: str) -> str:
        """The one remark for an unknown account, a wrong key and a disabled account.

        An empty `access_key`: the request carries none.
        """
