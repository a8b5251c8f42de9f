"""The console behind its API and its pages: who looks, what they ask, and what they are shown."""

from __future__ import annotations

import secrets
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.console import commands
from aerobee.broker.console.inside import InsideConnection, ending
from aerobee.broker.console.looks.cluster import KEPT_MAX, ClusterLooks, look_at_cluster
from aerobee.broker.console.looks.merging import merged
from aerobee.broker.console.looks.snapshot import ClusterLook
from aerobee.broker.console.looks.viewers import Failure, Outcome, Viewer
from aerobee.broker.console.operations import OPERATIONS
from aerobee.broker.console.sessions import Logins, Session, Sessions
from aerobee.errors import AerobeeError
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aerobee.broker.access.authority import Authority
    from aerobee.broker.config.settings.console import ConsoleConfig
    from aerobee.broker.console.looks.own import OwnBroker
    from aerobee.broker.console.looks.snapshot import Snapshot
    from aerobee.client.blocking.client import Client
    from aerobee.store.clock import Clock

T = TypeVar("T")

THREADS: Final = 8
"""Operations at once; others wait."""
THREADS_OF_USER: Final = 4
"""Operations of one user at once: other users find a thread."""
COMPUTING: Final = 1
"""Lists and pages that are made at once: more would be no sooner, and leave less to the loop."""
CALL_S: Final = 30.0
"""How long an operation may take, its wait included. A change goes on behind that to its end."""
TURN_S: Final = 15.0
"""How long a change waits for the one before, of those that are done in turn."""
CLIENTS_MAX: Final = 32
"""Viewers whose client stays open after an operation."""
CLIENT_IDLE_S: Final = 60.0
TOKEN_BYTES: Final = 32
NOBODY_CHANGES: Final = (
    "this broker has no users, so the console changes nothing: set authenticationEnabled"
)
NO_ACCOUNT: Final = (
    "this console has no account, so it changes nothing: set AEROBEE_ACCESS_KEY and"
    " AEROBEE_SECRET_KEY, or use a context with --access-key"
)
NO_NAME_SERVER: Final = "there is no name server: set embeddedNamesrv or namesrvAddr"
NO_BROKER: Final = (
    "this console has no broker of its own: `aerobee broker config get` shows the settings of one"
)
NOT_IN_TURN: Final = (
    "other dead letters are being dealt with for you: try again when that has ended"
)
GUESSED: Final = "too many wrong secrets: wait a minute"


@dataclass(slots=True)
class KeptClient:
    """The client of a viewer, and the operations that use it now."""

    client: Client
    used: float
    uses: int = 0
    started: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by the change that is done now, of those that are done in turn."""


@contextmanager
def in_turn(turn: threading.Lock) -> Iterator[None]:
    """A change that is done behind the one before. Raises: Failure where that takes long."""
    if not turn.acquire(timeout=TURN_S):
        raise Failure(409, "refused", NOT_IN_TURN)
    try:
        yield
    finally:
        turn.release()


class UserThreads:
    """The limit of threads of one user, and of all together, as trio takes a limiter."""

    def __init__(self, every: trio.CapacityLimiter) -> None:
        self._own = trio.CapacityLimiter(THREADS_OF_USER)
        self._every = every

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a thread."""
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._every.acquire_on_behalf_of(borrower)
        except BaseException:
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        """Give it back."""
        self._every.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)


class JointSnapshot(NamedTuple):
    """A snapshot, and what it was made of."""

    own: Snapshot | None
    look: ClusterLook
    snapshot: Snapshot


class Console:
    """One console."""

    operations = OPERATIONS

    def __init__(
        self,
        own: OwnBroker | None,
        *,
        clock: Clock,
        config: ConsoleConfig,
        authority: Callable[[], Authority | None],
        connect: Callable[[str, str, str], Client] | None,
    ) -> None:
        """`own`: the broker in this process, if there is one. `authority`: decides over viewers;
        None: there are no users. `connect`: a new client for the cluster, by name, secret and
        address of a viewer; None: there is no name server to ask.
        """
        self.own = own
        self._clock = clock
        self._config = config
        self._authority = authority
        self._connect = connect
        self.sessions = Sessions(partial(secrets.token_urlsafe, TOKEN_BYTES))
        self.logins = Logins(secrets.token_bytes(TOKEN_BYTES))
        self._looks = ClusterLooks(clock)
        self._threads = trio.CapacityLimiter(THREADS)
        self._threads_of: WeakValueDictionary[str, UserThreads] = WeakValueDictionary()
        self._computing = trio.CapacityLimiter(COMPUTING)
        self._clients: dict[tuple[str, bytes, str], KeptClient] = {}
        self._lock = threading.Lock()
        self._merged: dict[tuple[str, bytes], JointSnapshot] = {}

    # ── Who looks ──

    @property
    def has_users(self) -> bool:
        """Whether requests need an account."""
        return self._authority() is not None

    @property
    def readable(self) -> str:
        """Why nobody may change anything; empty: who has the rights may."""
        if self.has_users:
            return ""
        return NO_ACCOUNT if self.own is None else NOBODY_CHANGES

    @property
    def naming(self) -> str:
        """The way to have the console known under another host name."""
        return "give it with --name" if self.own is None else "set consoleNames to it"

    @property
    def letting_in(self) -> str:
        """The way to have it serve more than this host."""
        if self.own is None:
            return "set AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY"
        return "set authenticationEnabled"

    @property
    def live_pages_max(self) -> int:
        """Pages that may be live at once: each keeps its connection, and others need some, too."""
        return self._config.console_max_connections // 2

    def nobody(self, address: str) -> Viewer:
        """A viewer of a broker without users."""
        return Viewer(address=address)

    def log_in(self, name: str, secret: str, address: str) -> tuple[str, Viewer]:
        """Begin a session; its token. Raises: Failure."""
        viewer = self.signed_in(name, secret, address)
        assert viewer.account is not None
        token, session = self.sessions.begin(viewer.account, self._now_ms())
        return token, self._viewer(session, address)

    def signed_in(self, name: str, secret: str, address: str) -> Viewer:
        """The viewer with this name and secret. Raises: Failure."""
        authority, now_ms = self._authority(), self._now_ms()
        if authority is None:
            raise Failure(400, "usage", "this broker has no users: there is nothing to log in to")
        if self.logins.too_many(name, address, now_ms):
            raise Failure(429, "too_many", GUESSED)
        account = self.logins.check(name, secret, address, authority.account, now_ms)
        if account is None:
            raise Failure(401, "unauthorized", "name or secret is wrong")
        return self._viewer(Session(account, "", now_ms, now_ms), address)

    def session_of(self, token: str, address: str) -> Viewer | None:
        """The viewer of a session; None: it has ended, or there never was one."""
        authority = self._authority()
        if authority is None:
            return None
        session = self.sessions.find(token, authority.account, self._now_ms())
        return None if session is None else self._viewer(session, address)

    def is_here(self, viewer: Viewer, token: str) -> bool:
        """Whether a viewer of a page that is open may still look: the session has not ended."""
        authority = self._authority()
        if viewer.account is None or authority is None:
            return viewer.account is None and authority is None
        return self.sessions.has(token, viewer.account, authority.account, self._now_ms())

    def _viewer(self, session: Session, address: str) -> Viewer:
        name = session.account.access_key
        readers = self._config.console_body_readers
        return Viewer(
            address=address,
            account=session.account,
            authority=self._authority(),
            csrf=session.csrf,
            may_read_bodies=name in map(str.strip, readers.split(",")),
        )

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    # ── Operations ──

    async def call(
        self,
        viewer: Viewer,
        name: str,
        arguments: Mapping[str, Any],
        *,
        confirmed: bool = False,
    ) -> Outcome:
        """Do one operation as the viewer, or say what it would do. Raises: Failure."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise Failure(404, "not_found", f"there is no operation {name:.80}")
        # A call that is not confirmed asks, or only says what it would do.
        if operation.changes and confirmed and not viewer.may_write:
            raise Failure(403, "read_only", self.readable)
        run = partial(ending, self._run)
        if operation.changes:
            run = partial(self._run, alone=confirmed and operation.in_turn)
        with trio.move_on_after(CALL_S):
            return await in_thread(
                run,
                viewer,
                partial(commands.run, operation, arguments, confirmed=confirmed),
                abandon_on_cancel=True,
                limiter=self._limiter(viewer),
            )
        raise Failure(504, "late", "it took longer than {limit} s", {"limit": f"{CALL_S:g}"})

    def _limiter(self, viewer: Viewer) -> Any:
        if viewer.account is None:
            return self._threads
        return self._threads_of.setdefault(viewer.name, UserThreads(self._threads))

    def _run(self, viewer: Viewer, run: Callable[..., T], *, alone: bool = False) -> T:
        """Run in a thread; `alone`: in turn with others that are. Raises: Failure."""
        try:
            kept = self._take_client(viewer)
            try:
                with kept.lock:
                    if not kept.started:
                        # A start that fails leaves nothing behind, and the next call tries again.
                        kept.client.start()
                        kept.started = True
                with in_turn(kept.turn) if alone else nullcontext():
                    connection = InsideConnection(kept.client)
                    return run(connection=connection, bodies=viewer.may_read_bodies)
            finally:
                self._give_back(kept)
        except AerobeeError as error:
            raise commands.failure_of(error) from None

    def _take_client(self, viewer: Viewer) -> KeptClient:
        name, secret = viewer.key
        key = (name, secret, viewer.address)
        if self._connect is None:
            raise Failure(503, "unreachable", NO_NAME_SERVER)
        with self._lock:
            kept = self._clients.pop(key, None)
            if kept is None:
                client = self._connect(name, secret.decode(), viewer.address)
                kept = KeptClient(client, self._clock.monotonic())
            self._clients[key] = kept
            kept.uses += 1
            return kept

    def _give_back(self, kept: KeptClient) -> None:
        """Keep a client for a while, and close those that nobody has used for longer."""
        now = self._clock.monotonic()
        with self._lock:
            kept.uses -= 1
            kept.used = now
            idle = [key for key, other in self._clients.items() if not other.uses]
            many = len(self._clients) - CLIENTS_MAX
            over = [
                key
                for number, key in enumerate(idle)
                if number < many or now - self._clients[key].used > CLIENT_IDLE_S
            ]
            leaving = [self._clients.pop(key) for key in over]
        for other in leaving:
            other.client.close()

    def close(self) -> None:
        """Close all clients. Blocks."""
        with self._lock:
            leaving = list(self._clients.values())
            self._clients.clear()
        for kept in leaving:
            kept.client.close()

    # ── Lists and objects ──

    async def snapshot(self, viewer: Viewer) -> Snapshot:
        """The newest snapshot of what all brokers tell this viewer."""
        own: Snapshot | None = None if self.own is None else await self.own.snapshot()
        look = await self._look(viewer)
        if own is not None and not look.tables and not look.failure and len(look.rows) <= 1:
            return replace(own, brokers=look.rows)
        account = viewer.key
        known = self._merged.pop(account, None)
        if known is None or known.own is not own or known.look is not look:
            made = await self.beside(merged, own, look, self._clock.now_ms())
            known = JointSnapshot(own, look, made)
        self._merged[account] = known
        if len(self._merged) > KEPT_MAX:
            del self._merged[next(iter(self._merged))]
        return known.snapshot

    async def _look(self, viewer: Viewer) -> ClusterLook:
        if self._connect is None:
            return ClusterLook()

        def is_own(address: str) -> bool:
            return self.own is not None and self.own.is_own(address, viewer.address)

        def look(before: ClusterLook) -> ClusterLook:
            def run(connection: InsideConnection, *, bodies: bool) -> ClusterLook:
                return look_at_cluster(connection.client, before, is_own, self._clock.now_ms)

            return self._run(viewer, run)

        return await self._looks.newest(viewer.key, look)

    async def beside(self, compute: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that only computes, over rows that may be many: in a thread, so
        that the loop serves the others meanwhile. Raises: what the function raises.
        """
        return await in_thread(compute, *arguments, limiter=self._computing)

    async def rows(self, viewer: Viewer, name: str) -> tuple[Sequence[Mapping[str, Any]], int]:
        """A list by its name in LISTS, and when it was so. Raises: Failure."""
        if name == "audit":
            return self._own_for(viewer).audit(), self._clock.now_ms()
        if name == "settings":
            return await self.beside(self._own_for(viewer).settings), self._clock.now_ms()
        snapshot = await self.snapshot(viewer)
        of_viewer = {
            "brokers": snapshot.brokers_of,
            "topics": snapshot.topics_of,
            "groups": snapshot.groups_of,
            "clients": snapshot.clients_of,
            "dlq": snapshot.dead_letters_of,
            "findings": snapshot.findings_of,
        }
        return await self.beside(of_viewer[name], viewer), snapshot.at_ms

    async def record(self, viewer: Viewer, name: str) -> tuple[Mapping[str, Any], int]:
        """An object by its name in OBJECTS, and when it was so. Raises: Failure."""
        if name == "me":
            return self._me(viewer), self._clock.now_ms()
        if name == "overview":
            snapshot = await self.snapshot(viewer)
            return await self.beside(snapshot.overview_of, viewer), snapshot.at_ms
        own = self._own_for(viewer)
        of_broker = await own.snapshot()
        return own.store(of_broker), of_broker.at_ms

    def _own_for(self, viewer: Viewer) -> OwnBroker:
        """The broker in this process, where the viewer may read all of it. Raises: Failure."""
        if self.own is None:
            raise Failure(404, "no_broker", NO_BROKER)
        cluster = self.own.cluster
        if not viewer.may(Kind.CLUSTER, cluster, Action.GET):
            about = {"user": viewer.name, "cluster": cluster}
            raise Failure(403, "forbidden", "{user} may not read Cluster:{cluster}", about)
        return self.own

    def _me(self, viewer: Viewer) -> dict[str, Any]:
        return {
            "name": viewer.name or None,
            "address": viewer.address,
            "csrf": viewer.csrf or None,
            "may_write": viewer.may_write,
            "may_read_bodies": viewer.may_read_bodies,
            "read_only_because": self.readable or None,
        }
