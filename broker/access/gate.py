"""The gate: checks who sends a request and whether it may, before its handler runs.

Nothing is queued, held or registered for a request that is refused here. One-way requests are
checked the same way; a refused one is dropped and counted.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import structlog

from aerobee.broker.access.authority import Asked
from aerobee.broker.access.permissions import PERMISSIONS, needs_of
from aerobee.remoting.errors import BodyError, HeaderError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.request_signature import ACCESS_KEY, is_signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.access.access_stats import AccessStats
    from aerobee.broker.access.authority import Account, Authority, Host
    from aerobee.broker.consumers.clients import ClientConnection
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.wire.command import Command

__all__ = ["Gate"]

NO_ROW = "request code {} has no row in the table of permissions"

log = structlog.stdlib.get_logger(__name__)


class NotAllowed(NamedTuple):
    """Why a request is refused; `proven`: its signature was good."""

    remark: str
    proven: bool = False


class Gate:
    """Decides over requests with one authority. `cluster` is the name of the cluster resource."""

    def __init__(self, authority: Authority, cluster: str, stats: AccessStats) -> None:
        self.authority = authority
        self._cluster = cluster
        self._stats = stats
        self._nobody = secrets.token_bytes(32)
        """The secret that the requests of unknown accounts are compared with: it takes as long."""

    def check(self, command: Command, connection: Connection) -> Answer | None:
        """The refusal of a request; None: it may be served. Hot when access control is on."""
        host = host_of(connection.host[:-4])
        if self.authority.opens(command.code, host):
            return None
        try:
            refused = self._examined(command, connection, host)
        except (HeaderError, BodyError) as error:
            return Answer(int(ResponseCode.SYSTEM_ERROR), remark=str(error))
        if refused is None:
            return None
        return self._refused(command, connection, refused)

    def _examined(self, command: Command, connection: Connection, host: Host) -> NotAllowed | None:
        """Why a request is refused; None: it is not. Raises: HeaderError, BodyError."""
        fields = command.ext_fields()
        access_key = fields.get(ACCESS_KEY, "")
        account = self.authority.account(access_key)
        if account is not None and self.authority.trusts(account, host):
            connection.accounts |= {access_key}
            return None
        secret = self._nobody if account is None else account.secret
        # An unknown account costs as much as a known one.
        signed = is_signed(secret, fields, command.body)
        if account is None or not signed:
            return NotAllowed(self.authority.not_authenticated(access_key))
        if access_key not in connection.accounts:
            connection.accounts |= {access_key}
        return self._authorized(account, command, fields, host)

    def _authorized(
        self, account: Account, command: Command, fields: Mapping[str, str], host: Host
    ) -> NotAllowed | None:
        row = PERMISSIONS.get(command.code)
        if row is None:
            return NotAllowed(NO_ROW.format(command.code), proven=True)
        needs = needs_of(row, fields, command.body, self._cluster)
        remark = self.authority.objection(account, Asked(command.code, needs, host))
        return None if remark is None else NotAllowed(remark, proven=True)

    def may_publish(self, connection: ClientConnection, topic: str) -> bool:
        """Whether a client may be shown messages that were sent to a topic and not delivered yet:
        whether an account that has used its connection may send to it.
        """
        code, host = int(RequestCode.SEND_MESSAGE_V2), host_of(connection.host[:-4])
        authority = self.authority
        needs = needs_of(PERMISSIONS[code], {"b": topic}, b"", self._cluster)
        asked = Asked(code, needs, host)
        accounts = map(authority.account, connection.accounts)
        return authority.opens(code, host) or any(
            account is not None
            and (authority.trusts(account, host) or authority.objection(account, asked) is None)
            for account in accounts
        )

    def _refused(self, command: Command, connection: Connection, why: NotAllowed) -> Answer:
        stats = self._stats
        if why.proven:
            stats.not_authorized += 1
        else:
            stats.not_authenticated += 1
        if command.oneway:
            stats.dropped += 1
        log.warning(
            "access.refused", code=command.code, address=connection.address, reason=why.remark
        )
        return self.authority.refusal(why.remark)


@lru_cache(maxsize=4096)
def host_of(packed: bytes) -> Host:
    """The address of 4 or 16 bytes."""
    return ip_address(packed)
