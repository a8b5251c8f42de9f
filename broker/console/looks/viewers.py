"""Viewers of the console: their rights, and what an operation answers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.access.authority import AccessQuery
from aerobee.broker.access.permissions import Action, Kind, Need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.access.authority import Account, Authority

NO_CODE: Final = -1
"""The request code of a question that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Somebody at a browser, or a script. `account` is None where the broker has no users."""

    address: str
    """The IP address that the requests come from."""
    account: Account | None = None
    authority: Authority | None = None
    csrf: str = ""
    """The token that forms must carry; empty of a script, which signs each request by itself."""
    may_read_bodies: bool = False

    @property
    def name(self) -> str:
        """The name of the account; empty without one."""
        return self.account.access_key if self.account is not None else ""

    @property
    def key(self) -> tuple[str, bytes]:
        """The name and the secret of the account: the same for all that look by it."""
        return self.name, b"" if self.account is None else self.account.secret

    @property
    def may_write(self) -> bool:
        """Whether there is an account that changes can be put down to."""
        return self.account is not None

    def may(self, kind: Kind, resource: str, action: Action) -> bool:
        """Whether policies allow that: of a broker without users, whatever changes nothing."""
        if self.account is None or self.authority is None:
            return action in READS
        need = Need(kind, resource, frozenset({action}))
        query = AccessQuery(NO_CODE, (need,), ip_address(self.address))
        return self.authority.objection(self.account, query) is None


READS: Final = frozenset({Action.GET, Action.LIST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an operation.

    `asks`: it would do that, and has done nothing; call it again, confirmed.
    """

    value: Any = None
    """The value that the command prints with --json."""
    notes: Sequence[str] = ()
    """The remarks beside that, such as which brokers do not answer."""
    asks: str = ""
    complete: bool = True
    """False: the command ended as one that found something wrong, or did not reach everything."""


@dataclass(slots=True)
class Failure(Exception):
    """An operation that was refused or failed."""

    status: int
    """The status of HTTP."""
    kind: str
    text: str
    about: dict[str, Any] = field(default_factory=dict)
    """The values for the fields of `text`, which pages translate before."""
    template: str = field(init=False)
    """The text with its fields."""

    def __post_init__(self) -> None:
        self.template = self.text
        if self.about:
            self.text = self.text.format_map(self.about)

    def __str__(self) -> str:
        return self.text
