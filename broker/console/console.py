"""The console behind its API and its pages: who looks, what they ask, and what they are shown."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.config.explained import default_text, meaning
from aerobee.broker.config.report import shown
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.console import commands
from aerobee.broker.console.inside import InsideClient, InsideConnection, ending, options_of
from aerobee.broker.console.looking import Looking
from aerobee.broker.console.operations import OPERATIONS
from aerobee.broker.console.sessions import Logins, Session, Sessions
from aerobee.broker.console.viewers import Failure, Outcome, Viewer
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.access.authority import Authority
    from aerobee.broker.console.inside import InsideSockets
    from aerobee.broker.console.looking import Tables
    from aerobee.broker.console.snapshot import Snapshot

T = TypeVar("T")

THREADS: Final = 8
"""Operations at once; others wait."""
COMPUTING: Final = 1
"""Lists and pages that are made at once: more would be no sooner, and leave less to the loop."""
CALL_S: Final = 30.0
"""How long an operation may take, its wait included. A change goes on behind that to its end."""
CLIENTS_MAX: Final = 32
"""Viewers whose client stays open after an operation."""
CLIENT_IDLE_S: Final = 60.0
TOKEN_BYTES: Final = 32
NOBODY_CHANGES: Final = (
    "this broker has no users, so the console changes nothing: set authenticationEnabled"
)
GUESSED: Final = "too many wrong secrets: wait a minute"


@dataclass(slots=True)
class KeptClient:
    """The client of a viewer, and the operations that use it now."""

    client: InsideClient
    used: float
    uses: int = 0
    started: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Console:
    """One console. `namesrv`: the name server whose brokers it shows."""

    operations = OPERATIONS

    def __init__(
        self,
        tables: Tables,
        *,
        audit: Audit,
        authority: Callable[[], Authority | None],
        namesrv: str,
        sockets: InsideSockets,
    ) -> None:
        self._tables = tables
        self._audit = audit
        self._authority = authority
        self._namesrv = namesrv
        self._sockets = sockets
        self._clock = tables.core.clock
        self.sessions = Sessions(partial(secrets.token_urlsafe, TOKEN_BYTES))
        self.logins = Logins()
        self._looking = Looking(tables)
        self._threads = trio.CapacityLimiter(THREADS)
        self._computing = trio.CapacityLimiter(COMPUTING)
        self._clients: dict[tuple[str, bytes, str], KeptClient] = {}
        self._lock = threading.Lock()
        self.snapshot: Callable[[], Any] = self._looking.snapshot
        """The newest snapshot."""

    # ── Who looks ──

    @property
    def has_users(self) -> bool:
        """Whether requests need an account."""
        return self._authority() is not None

    @property
    def readable(self) -> str:
        """Why nobody may change anything; empty: who has the rights may."""
        return "" if self.has_users else NOBODY_CHANGES

    @property
    def live_pages_max(self) -> int:
        """Pages that may be live at once: each keeps its connection, and others need some, too."""
        return self._tables.core.config.console.console_max_connections // 2

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

    def _viewer(self, session: Session, address: str) -> Viewer:
        name = session.account.access_key
        readers = self._tables.core.config.console.console_body_readers
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
        # What is not confirmed asks, or only says what it would do.
        if operation.changes and confirmed and not viewer.may_write:
            raise Failure(403, "read_only", NOBODY_CHANGES)
        run = self._run if operation.changes else partial(ending, self._run)
        with trio.move_on_after(CALL_S):
            return await trio.to_thread.run_sync(
                run,
                viewer,
                partial(commands.run, operation, arguments, confirmed=confirmed),
                abandon_on_cancel=True,
                limiter=self._threads,
            )
        raise Failure(504, "late", f"it took longer than {CALL_S:g} s")

    def _run(self, viewer: Viewer, run: Callable[..., Outcome]) -> Outcome:
        """Run in a thread. Raises: Failure."""
        kept = self._take_client(viewer)
        try:
            with kept.lock:
                if not kept.started:
                    self._start(kept)
            return run(connection=InsideConnection(kept.client), bodies=viewer.may_read_bodies)
        except AerobeeError as error:
            raise commands.failure_of(error) from None
        finally:
            self._give_back(kept)

    def _start(self, kept: KeptClient) -> None:
        try:
            kept.client.start()
        except BaseException:
            # Another call makes another one.
            with self._lock:
                self._clients = {
                    key: other for key, other in self._clients.items() if other is not kept
                }
            raise
        kept.started = True

    def _take_client(self, viewer: Viewer) -> KeptClient:
        account = viewer.account
        secret = b"" if account is None else account.secret
        key = (viewer.name, secret, viewer.address)
        with self._lock:
            kept = self._clients.pop(key, None)
            if kept is None:
                client = InsideClient(
                    self._namesrv,
                    self._sockets,
                    viewer.address,
                    **options_of(viewer.name, secret.decode()),
                )
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

    async def beside(self, compute: Callable[..., T], *arguments: Any) -> T:
        """What a function comes to that only computes, over rows that may be many: in a thread, so
        that the loop serves the others meanwhile. Raises: what the function raises.
        """
        return await trio.to_thread.run_sync(compute, *arguments, limiter=self._computing)

    async def rows(self, viewer: Viewer, name: str) -> tuple[Sequence[Mapping[str, Any]], int]:
        """A list by its name in LISTS, and when it was so. Raises: Failure."""
        if name == "audit":
            self._check_cluster(viewer)
            return list(reversed(self._audit.newest)), self._clock.now_ms()
        if name == "settings":
            self._check_cluster(viewer)
            return await self.beside(self._settings), self._clock.now_ms()
        snapshot: Snapshot = await self.snapshot()
        of_viewer = {
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
        snapshot: Snapshot = await self.snapshot()
        if name == "overview":
            return snapshot.overview, snapshot.at_ms
        self._check_cluster(viewer)
        return self._store(snapshot), snapshot.at_ms

    def _check_cluster(self, viewer: Viewer) -> None:
        """Check that the viewer may read what is of the broker as a whole. Raises: Failure."""
        cluster = self._tables.core.config.broker.broker_cluster_name
        if not viewer.may(Kind.CLUSTER, cluster, Action.GET):
            raise Failure(403, "forbidden", f"{viewer.name} may not read Cluster:{cluster}")

    def _settings(self) -> list[dict[str, Any]]:
        config = self._tables.core.config
        return [
            {
                "key": key.name,
                "value": shown(config, key),
                "default": default_text(key),
                "source": config.sources.get(key.name),
                "live": key.declaration.live,
                "meaning": meaning(key),
            }
            for key in sorted(SCHEMA.values(), key=lambda key: key.name)
        ]

    def _me(self, viewer: Viewer) -> dict[str, Any]:
        return {
            "name": viewer.name or None,
            "address": viewer.address,
            "csrf": viewer.csrf or None,
            "may_write": viewer.may_write,
            "may_read_bodies": viewer.may_read_bodies,
            "read_only_because": self.readable or None,
        }

    def _store(self, snapshot: Snapshot) -> dict[str, Any]:
        store = self._tables.core.store
        names = ("disk_percent", "disk_free_bytes", "disk_full_in_s", "log_bytes", "oldest_at_ms")
        return {
            "root": str(store.root),
            "log_first": store.commit_log.min_offset,
            "log_end": store.commit_log.max_offset,
            "flush_behind_bytes": store.flush_behind_bytes,
            "dispatch_behind_bytes": store.dispatch_behind_bytes,
            "problem": snapshot.overview["problem"],
            **{name: snapshot.overview[name] for name in names},
        }
