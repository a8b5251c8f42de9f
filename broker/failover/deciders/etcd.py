"""etcd as the decider: each call asks the endpoints in turn, the last that answered first.

An endpoint may be down, hang, or have no leader. So the next one is asked as well when one has been
silent for a small part of the lease, and the first answer counts: a renewal reaches one that
answers while the lease lasts. An answer that etcd does not give, as of a proxy in front of it, is
none. A change that is sent twice is the same: it is a compare-and-swap, and one that was applied
already is found by its own record. A lease that nobody uses ends by itself.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from aerobee.broker.errors import first_reason
from aerobee.broker.failover.decider import ChangeRefused, DeciderMisused, DeciderSilent, Sight
from aerobee.broker.failover.deciders.etcd_calls import (
    AUTHENTICATE,
    GRANT,
    KEEP_ALIVE,
    NO_LEASE,
    RANGE,
    TOKEN_REFUSED,
    TXN,
    WATCH,
    AnswerIllegal,
    Keys,
    failure,
    granted,
    granting,
    has_news,
    parsed,
    renewed,
    renewing,
)
from aerobee.broker.failover.deciders.etcd_http import (
    ANSWER_BYTES_MAX,
    AnswerBroken,
    Exchange,
    connection,
)
from aerobee.broker.failover.record import RecordIllegal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.broker.config.settings.failover import Endpoint
    from aerobee.broker.failover.record import Record

T = TypeVar("T")

PART: Final = 0.2
"""The part of the lease that one endpoint may take for an answer."""
NEXT_AFTER: Final = 0.05
"""The part of the lease after which the next endpoint is asked as well. A renewal begins at half of
the lease, and counts until four fifths: three endpoints may hang before the one that answers.
"""
UNANSWERED: Final = (
    OSError,
    ssl.SSLError,
    trio.TooSlowError,
    trio.BrokenResourceError,
    AnswerBroken,
    AnswerIllegal,
    UnicodeError,
)
"""How an endpoint does not answer; UnicodeError: its host is no name."""
OK: Final = 200
SHOWN_BYTES: Final = 200
"""How much is shown of an answer that is no JSON."""
TOKEN: Final = re.compile("[!-~]+")
"""A token that can stand in a header."""
CLIENT_ERRORS: Final = range(400, 500)


class LeaseOver(Exception):
    """etcd knows no such lease."""


class Etcd:
    """The four calls of a decider."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        keys: Keys,
        lease_s: int,
        *,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        assert endpoints
        self.endpoints = list(endpoints)
        """The last that answered first."""
        self._keys = keys
        self._lease_s = lease_s
        self.answer_s = lease_s * PART
        """How long one endpoint may take for an answer."""
        self._tls = tls
        self._user, self._password = user, password
        self._token = ""

    # ── The four calls ──

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        """See `Decider.look`."""
        if known is not None:
            with trio.move_on_after(wait_s):
                await self._until_news(known.moment)
        return await self._call(RANGE, self._keys.looking(), self._keys.sight)

    async def take(self, sight: Sight, record_for: Callable[[str], Record]) -> Sight:
        """See `Decider.take`."""
        lease = await self._call(GRANT, granting(self._lease_s), granted)
        record = record_for(lease)
        return await self._exchange(self._keys.taking(sight.version, record), record)

    async def renew(self, lease: str) -> bool:
        """See `Decider.renew`."""
        try:
            if not await self._call(KEEP_ALIVE, renewing(lease), renewed):
                return False
        except LeaseOver:
            return False
        return await self._holds(lease)

    async def _holds(self, lease: str) -> bool:
        """Whether a lease that lasts is the one that counts: etcd renews it as well once a person
        has removed the holder. True: nothing says otherwise soon.
        """
        sight = None
        with (
            trio.move_on_after(self._lease_s * NEXT_AFTER),
            suppress(DeciderSilent, DeciderMisused, RecordIllegal),
        ):
            sight = await self.look(None, 0)
        if sight is None:
            return True
        return sight.held and (sight.record is None or sight.record.lease == lease)

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        """See `Decider.change`."""
        return await self._exchange(self._keys.changing(sight.version, record, lease), record)

    async def _exchange(self, body: dict[str, Any], record: Record) -> Sight:
        try:
            sight = await self._call(TXN, body, lambda answer: self._keys.exchanged(answer, record))
        except LeaseOver as error:
            raise ChangeRefused("the lease is over") from error
        if sight is None:
            raise ChangeRefused("the record or its holder is another one")
        return sight

    # ── Endpoints ──

    async def _call(self, path: str, body: dict[str, Any], read: Callable[[object], T]) -> T:
        """The answer of the first endpoint that answers; an endpoint that refuses us has not.

        `read` makes it of the answer, and raises AnswerIllegal for what is none. Raises:
        DeciderSilent, DeciderMisused, LeaseOver, RecordIllegal.
        """
        answers: list[T] = []
        errors: list[LeaseOver | RecordIllegal] = []
        reasons: list[str] = []
        misused = False

        async def ask(target: Endpoint, silent: trio.Event) -> None:
            nonlocal misused
            try:
                with trio.fail_after(self.answer_s):
                    answers.append(read(await self._ask(target, path, body)))
            except (LeaseOver, RecordIllegal) as error:
                errors.append(error)
            except (*UNANSWERED, DeciderMisused) as error:
                misused = misused or isinstance(error, DeciderMisused)
                reasons.append(f"{target.url}: {first_reason(error)}")
                silent.set()
                return
            self.endpoints.remove(target)
            self.endpoints.insert(0, target)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for target in list(self.endpoints):
                silent = trio.Event()
                nursery.start_soon(ask, target, silent)
                with trio.move_on_after(self._lease_s * NEXT_AFTER):
                    await silent.wait()
        if answers:
            return answers[0]
        if errors:
            raise errors[0]
        raise (DeciderMisused if misused else DeciderSilent)("; ".join(reasons))

    async def _ask(self, target: Endpoint, path: str, body: dict[str, Any]) -> object:
        """One endpoint; signs in first where that is needed, and again when it is over."""
        if self._user and not self._token:
            await self._sign_in(target)
        status, code, answer = await self._post(target, path, body, self._token)
        if code in TOKEN_REFUSED and self._user:
            await self._sign_in(target)
            status, code, answer = await self._post(target, path, body, self._token)
        if status == OK and code < 0:
            return answer
        text = failure(answer)[1]
        reason = f"{path} is answered with {status}: {text}"
        if NO_LEASE in text:
            raise LeaseOver(reason)
        if status in CLIENT_ERRORS:
            raise DeciderMisused(reason)
        raise AnswerIllegal(reason)

    async def _post(
        self, target: Endpoint, path: str, request: dict[str, Any], token: str
    ) -> tuple[int, int, object]:
        """Status, code of gRPC or −1, and answer."""
        async with await connection(target, self._tls) as stream:
            exchange = Exchange(stream)
            await exchange.send(target, path, request, token)
            body = await exchange.whole()
        try:
            answer = parsed(body)
        except AnswerIllegal as error:
            # etcd tells in plain text why it refuses a certificate.
            text = body[:SHOWN_BYTES].decode("utf-8", "replace").strip()
            raise AnswerIllegal(f"{exchange.status}, {error}: {text!r}") from error
        return exchange.status, failure(answer)[0], answer

    async def _sign_in(self, target: Endpoint) -> None:
        account = {"name": self._user, "password": self._password}
        status, _, answer = await self._post(target, AUTHENTICATE, account, "")
        token = answer.get("token") if isinstance(answer, dict) else None
        if status in CLIENT_ERRORS:
            raise DeciderMisused(f"user {self._user}: {failure(answer)[1]}")
        if status != OK or not isinstance(token, str) or not TOKEN.fullmatch(token):
            raise AnswerIllegal(f"no token, but {status}: {failure(answer)[1]}")
        self._token = token

    async def _until_news(self, moment: int) -> None:
        """Wait until something has changed, or the endpoint cannot tell."""
        target, body = self.endpoints[0], self._keys.watching(moment)
        try:
            with trio.fail_after(self.answer_s):
                stream = await connection(target, self._tls)
            async with stream:
                exchange, rest = Exchange(stream), b""
                await exchange.send(target, WATCH, body, self._token)
                while (part := await exchange.part()) is not None and len(rest) < ANSWER_BYTES_MAX:
                    *lines, rest = (rest + part).split(b"\n")
                    if exchange.status == OK and any(has_news(parsed(line)) for line in lines):
                        return
        except UNANSWERED:
            pass  # the look that follows says why, if that fails as well
        # The caller looks again at once: a watch that always fails must not make that a busy loop.
        await trio.sleep(self.answer_s)
