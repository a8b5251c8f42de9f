"""Sessions of browsers, and the limits on guesses of secrets. Pure: time and tokens come in.

A session is a token in a cookie; it ends when nobody has used it for IDLE_MS, at the latest after
LONGEST_MS, and at once when its account is gone or has another secret. The newest sessions stay
where there are too many.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aerobee.remoting.rate_limit import RateLimits
from aerobee.remoting.server.addresses import source_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.access.authority import Account

IDLE_MS: Final = 30 * 60 * 1000
LONGEST_MS: Final = 12 * 60 * 60 * 1000
SESSIONS_MAX: Final = 256
SESSIONS_OF_NAME_MAX: Final = 16
GUESSES: Final = 5
"""Wrong secrets from one address that are answered at once, and again as many in each minute."""
GUESSES_OF_NAME: Final = 20
"""Wrong secrets for one name, from any address: fewer would let others lock its owner out."""
MINUTE_S: Final = 60
WRONG_MAX: Final = 1_000
"""Wrong secrets that are remembered."""
NO_SECRET: Final = b"\0" * 32


@dataclass(slots=True)
class Session:
    """A browser that has logged in."""

    account: Account
    csrf: str
    began_ms: float
    used_ms: float


class Sessions:
    """All sessions, by token; that used longest ago is the first."""

    def __init__(self, new_token: Callable[[], str]) -> None:
        self._new_token = new_token
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, account: Account, now_ms: float) -> tuple[str, Session]:
        """A session of an account, and its token."""
        name = account.access_key
        own = [
            token for token, session in self._sessions.items() if session.account.access_key == name
        ]
        if len(own) >= SESSIONS_OF_NAME_MAX:
            del self._sessions[own[0]]
        if len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        token = self._new_token()
        session = self._sessions[token] = Session(account, self._new_token(), now_ms, now_ms)
        return token, session

    def find(
        self, token: str, account: Callable[[str], Account | None], now_ms: float
    ) -> Session | None:
        """The session of a token, used now. `account`: the enabled account of a name."""
        session = self._sessions.pop(token, None)
        if session is None:
            return None
        known = account(session.account.access_key)
        if is_over(session, now_ms) or known is None or known.secret != session.account.secret:
            return None
        session.account = known
        session.used_ms = now_ms
        self._sessions[token] = session
        return session

    def has(
        self, token: str, viewer: Account, account: Callable[[str], Account | None], now_ms: float
    ) -> bool:
        """Whether a session goes on whose `viewer` is as before; that is no use of it. `account`:
        as `find`.
        """
        session, known = self._sessions.get(token), account(viewer.access_key)
        if session is None or known is None or is_over(session, now_ms):
            return False
        is_theirs = session.account.access_key == viewer.access_key
        # A person who may more or less than before opens the page again.
        same = (known.secret, known.is_super) == (viewer.secret, viewer.is_super)
        return is_theirs and same

    def end(self, token: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(token, None)


def is_over(session: Session, now_ms: float) -> bool:
    """Whether nobody has used a session for too long, or it began too long ago."""
    return now_ms - session.used_ms > IDLE_MS or now_ms - session.began_ms > LONGEST_MS


class Logins:
    """Checks names and secrets, a few wrong ones at a time.

    The same wrong secret again is no further guess: else a script with an old one would keep all of
    its address out, as behind a proxy. Nor is it looked at where no other is: else who guesses
    would learn which secrets others got wrong.
    """

    def __init__(self, key: bytes) -> None:
        """`key` is random, and makes digests of wrong secrets useless elsewhere."""
        self._key = key
        self._wrong: dict[bytes, None] = {}
        """Digests of names with wrong secrets, the newest last."""
        self._addresses = RateLimits(GUESSES / MINUTE_S, GUESSES)
        self._names = RateLimits(GUESSES_OF_NAME / MINUTE_S, GUESSES_OF_NAME)

    def too_many(self, name: str, address: str, now_ms: float) -> bool:
        """Whether there were so many wrong secrets that none is looked at now."""
        source = source_named(address)
        return self._addresses.spent(source, now_ms) or self._names.spent(name, now_ms)

    def check(
        self,
        name: str,
        secret: str,
        address: str,
        account: Callable[[str], Account | None],
        now_ms: float,
    ) -> Account | None:
        """The account, if the secret is right. An unknown name takes as long as a known one."""
        known = account(name)
        expected = NO_SECRET if known is None else known.secret
        right = hmac.compare_digest(expected, secret.encode(errors="replace"))
        if known is not None and right:
            return known
        guess = self._digest(name, secret)
        if guess in self._wrong:
            return None
        self._wrong[guess] = None
        if len(self._wrong) > WRONG_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._addresses.take(source_named(address), now_ms)
        self._names.take(name, now_ms)
        return None

    def _digest(self, name: str, secret: str) -> bytes:
        guess = f"{len(name)} {name}{secret}".encode(errors="replace")
        return hashlib.blake2b(guess, digest_size=16, key=self._key).digest()
