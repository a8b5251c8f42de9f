"""The gate: checks who sends a request and whether it may, before its handler runs.

Nothing is queued, held or registered for a request that is refused here. One-way requests are
checked the same way; a refused one is dropped and counted.

Guessing of keys is slowed down. An address whose signatures were wrong too often has its requests
over new connections, and its further wrong ones over any, held back until the next sweep, which
comes each second: so it has one guess a second for each connection that it has open, whether it
hears the answer or begins anew. Nobody is locked out: many clients may share the address, and those
who sign rightly wait a second at most, and once for a connection.

The signature of a long body is computed in turns; of a request without a signature nothing is.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from aerobee.broker.access.authority import AccessQuery, Account
from aerobee.broker.access.permissions import PERMISSIONS, needs_of
from aerobee.remoting.errors import BodyError, HeaderError
from aerobee.remoting.rate_limit import RateLimits
from aerobee.remoting.server.addresses import source_of
from aerobee.remoting.server.pools import too_fast
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import SENDS, RequestCode, ResponseCode
from aerobee.remoting.wire.request_signature import (
    ACCESS_KEY,
    SIGNATURE,
    is_signed,
    is_signed_in_steps,
)
from aerobee.remoting.wire.typed_command import TypedCommand

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from aerobee.broker.access.authority import Authority
    from aerobee.broker.access.white_addresses import Host
    from aerobee.broker.consumers.clients import Origin
    from aerobee.broker.counters.server_stats import AccessStats
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pop import ChangeInvisibleTime

NO_ROW = "request code {} has no row in the table of permissions"

SECRET_BYTES: Final = 32
LONG_BYTES: Final = 4 << 20
"""A longer body is hashed in turns; no send has one unless `maxMessageSize` was raised."""
GUESSES: Final = 5
"""Wrong signatures of one address that are refused at once, and again as many in each minute."""

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
        self._nobody = Account("", secrets.token_bytes(SECRET_BYTES))
        self._guesses = RateLimits(GUESSES / 60, GUESSES)

    def check(
        self, command: Command, connection: Caller
    ) -> Answer | Generator[None, None, Answer | None] | None:
        """The refusal of a request; None: it may be served; steps that end with one of these. Hot
        when access control is on.
        """
        host = host_of(connection.host[:-4])
        if self.authority.admits(host):
            connection.admit()
            return None
        if self.authority.opens(command.code):
            connection.welcome()
            return None
        try:
            fields = command.ext_fields()
        except HeaderError as error:
            return Answer(int(ResponseCode.SYSTEM_ERROR), remark=str(error))
        access_key = fields.get(ACCESS_KEY, "")
        # An unknown account costs as much as a known one.
        account = self.authority.account(access_key) or self._nobody
        if self.authority.trusts(account, host):
            connection.accounts |= {access_key}
            connection.admit()
            return None
        if len(command.body) > LONG_BYTES and SIGNATURE in fields:
            return self._check_long(account, fields, command, connection)
        if isinstance(command, TypedCommand):
            signed = command.proof(account.secret)
        else:
            signed = is_signed(account.secret, fields, command.body, command.code)
        return self._decided(account if signed else None, fields, command, connection)

    def lets_pass(self, command: Command, connection: Caller) -> bool:
        """Whether `check` would let a request pass that comes behind others of its connection, and
        note nothing; of most others it says no. Nothing is noted here either. Hot.
        """
        host = host_of(connection.host[:-4])
        if self.authority.admits(host) or self.authority.opens(command.code):
            return True
        try:
            fields = command.ext_fields()
            access_key = fields.get(ACCESS_KEY, "")
            account = self.authority.account(access_key)
            # How long this takes tells nothing of accounts that were not shown on the connection.
            if account is None or access_key not in connection.accounts:
                return False
            if self.authority.trusts(account, host):
                return True
            return (
                not connection.context.shared.users.limited
                and len(command.body) <= LONG_BYTES
                and is_signed(account.secret, fields, command.body, command.code)
                and self._authorized(account, command, fields, host) is None
            )
        except (BodyError, HeaderError):
            return False

    def _check_long(
        self,
        account: Account,
        fields: Mapping[str, str],
        command: Command,
        connection: Caller,
    ) -> Generator[None, None, Answer | None]:
        signed = yield from is_signed_in_steps(account.secret, fields, command.body, command.code)
        refused = self._decided(account if signed else None, fields, command, connection)
        if refused is not None:
            command.body = b""
        if connection.postponed:
            yield
        return refused

    def _decided(
        self,
        signer: Account | None,
        fields: Mapping[str, str],
        command: Command,
        connection: Caller,
    ) -> Answer | None:
        """The refusal of a request of this signer, None: of nobody."""
        try:
            refused = self._examined(signer, fields, command, connection)
        except BodyError as error:
            return Answer(int(ResponseCode.SYSTEM_ERROR), remark=str(error))
        if refused is None or isinstance(refused, Answer):
            return refused
        return self._refused(command, connection, refused)

    def _examined(
        self,
        signer: Account | None,
        fields: Mapping[str, str],
        command: Command,
        connection: Caller,
    ) -> NotAllowed | Answer | None:
        """Why a request is refused, or what says that its account is too fast; None: it may be
        served. Raises: BodyError.
        """
        access_key = fields.get(ACCESS_KEY, "")
        # While a long body was hashed the account may have changed.
        if signer is None or signer is not self.authority.account(access_key):
            if access_key:
                self._guessed(connection)
            return NotAllowed(self.authority.not_authenticated(access_key))
        if access_key not in connection.accounts:
            self._shown(connection, access_key)
        context = connection.context
        rates = context.shared.users
        if rates.limited:
            size = len(command.body) if command.code in SENDS else 0
            excess = rates.take(access_key, size, context.now * 1000)
            if excess is not None:
                context.stats.requests_too_fast += 1
                return too_fast(excess)
        return self._authorized(signer, command, fields, host_of(connection.host[:-4]))

    def _guessed(self, connection: Caller) -> None:
        """Count a wrong signature; of many, this one is answered later."""
        if not self._guesses.take(source_of(connection.host), connection.context.now * 1000):
            connection.postpone(to_sweep=True)

    def _shown(self, connection: Caller, access_key: str) -> None:
        """Note the account. A right guess is held back like a wrong one, which would tell it."""
        source, now_ms = source_of(connection.host), connection.context.now * 1000
        if not connection.accounts and self._guesses.spent(source, now_ms):
            connection.postpone(to_sweep=True)
        connection.accounts |= {access_key}
        connection.admit()

    def _authorized(
        self, account: Account, command: Command, fields: Mapping[str, str], host: Host
    ) -> NotAllowed | None:
        row = PERMISSIONS.get(command.code)
        if row is None:
            return NotAllowed(NO_ROW.format(command.code), proven=True)
        needs = needs_of(row, fields, command.body, self._cluster)
        remark = self.authority.objection(account, AccessQuery(command.code, needs, host))
        return None if remark is None else NotAllowed(remark, proven=True)

    def may_publish(self, connection: Origin, topic: str) -> bool:
        """Whether a client may be shown messages that were sent to a topic and not delivered yet:
        whether an account that has used its connection may send to it.
        """
        return self._may(connection, RequestCode.SEND_MESSAGE_V2, {"b": topic})

    def may_end(self, connection: Origin, topic: str) -> bool:
        """Whether a client may end transactions of a topic, which its request need not name."""
        return self._may(connection, RequestCode.END_TRANSACTION, {"topic": topic})

    def may_hide(self, connection: Origin, header: ChangeInvisibleTime) -> bool:
        """Whether a client may go on to work on a message that it has received."""
        return self._may(connection, RequestCode(header.code), header.ext())

    def _may(self, connection: Origin, request: RequestCode, fields: Mapping[str, str]) -> bool:
        """Whether an account that has used a connection may send such a request."""
        code, host, authority = int(request), host_of(connection.host[:-4]), self.authority
        needs = needs_of(PERMISSIONS[code], fields, b"", self._cluster)
        query = AccessQuery(code, needs, host)
        accounts = map(authority.account, connection.accounts)
        return (
            authority.admits(host)
            or authority.opens(code)
            or any(
                account is not None
                and (authority.trusts(account, host) or authority.objection(account, query) is None)
                for account in accounts
            )
        )

    def _refused(self, command: Command, connection: Caller, why: NotAllowed) -> Answer:
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
