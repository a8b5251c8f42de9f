"""TLS of the listeners of a process: loaded at the start, and again when its files change.

New connections get the new certificate; open ones keep what they have. Files are compared by
content, for Kubernetes replaces links and not files. New files that cannot work change nothing: the
old ones stay in use, and the problem is logged. Source: semantics §18.4 (TlsHelper,
FileWatchService).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import structlog
import trio

from aerobee.remoting.server.tls_files import (
    CertificateUnusable,
    TlsContext,
    listeners_show,
    load,
    plain_context,
    show,
    unusable,
)
from aerobee.remoting.tls_config import TlsMode
from aerobee.threads import in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aerobee.remoting.server.reactor import Reactor
    from aerobee.remoting.tls_config import TlsConfig
    from aerobee.store.clock import Clock

WATCH_S: Final = 0.5
"""How often the files are compared with those in use."""
SETTLE_S: Final = 1.0
"""How long files that cannot work may stay so before it is reported: they may be half written."""
PAIR_S: Final = 10.0
"""How long a new certificate waits for its key, or a key for its certificate, before that."""
DAY_S: Final = 86_400
SOON_DAYS: Final = 14
"""A certificate that ends within this time is reported."""

Contents: TypeAlias = tuple[bytes | None, ...]
"""Of certificate, key and trusted certificates; None for a file that cannot be read."""

log = structlog.stdlib.get_logger(__name__)


class ListenerTls:
    """The certificates that `reactor` shows and trusts. Nothing happens where TLS is off."""

    def __init__(
        self, config: TlsConfig, reactor: Reactor, clock: Clock, *, http: bool = False
    ) -> None:
        """`http`: the listener of metrics and probes shows the certificate, too."""
        self._config = config
        self._reactor = reactor
        self._clock = clock
        self._off = config.tls_server_mode is TlsMode.DISABLED
        self.wanted = bool(config.tls_server_cert_path) and (http or not self._off)
        self.http = plain_context() if http else None
        """The context by which HTTP is encrypted. It asks clients for no certificate."""
        self.takers: list[Callable[[ssl.SSLContext], None]] = []
        """Called with each new context of the listeners: ports beside those of the reactor."""
        self._used: Contents = ()
        self._refused: Contents = ()
        """The files of which it was reported that they cannot work."""
        self._seen: Contents = ()
        self._seen_at = 0.0
        """Since when the files are as they were seen last."""

    def open(self) -> None:
        """Read the files for the first time. Blocking. Raises: CertificateUnusable."""
        if self.wanted:
            self._used = self._contents()
            self._take(self._load())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the files until cancelled."""
        task_status.started()
        if self.wanted:
            await self._watch()

    async def reload(self) -> None:
        """Read the files again now, and report what is wrong with them."""
        if self.wanted:
            contents = await in_thread(self._contents)
            problem = await self._try(contents)
            if problem is not None:
                self._report(contents, problem)

    async def _watch(self) -> NoReturn:
        while True:
            await trio.sleep(WATCH_S)
            await self.look(trio.current_time())

    async def look(self, now: float) -> None:
        """Take over files that have changed. `now`: seconds of the loop's clock."""
        contents = await in_thread(self._contents)
        if contents in (self._used, self._refused):
            return
        if contents != self._seen:
            self._seen, self._seen_at = contents, now
        problem = await self._try(contents)
        if problem is not None:
            (cert, key, _), (old_cert, old_key, _) = contents, self._used
            half = (cert == old_cert) != (key == old_key)
            if now - self._seen_at >= (PAIR_S if half else SETTLE_S):
                self._report(contents, problem)

    async def _try(self, contents: Contents) -> CertificateUnusable | None:
        try:
            loaded = await in_thread(self._load)
        except CertificateUnusable as problem:
            return problem
        except OSError as error:
            # Of the certificate that HTTP shows as well, which is read once more.
            return unusable(self._config, error)
        self._used, self._refused = contents, ()
        self._take(loaded)
        return None

    def _report(self, contents: Contents, problem: CertificateUnusable) -> None:
        self._refused = contents
        log.error("tls.reload_failed", reason=str(problem))

    def _take(self, loaded: TlsContext) -> None:
        config, warnings = self._config, loaded.warnings
        enforcing = config.tls_server_mode is TlsMode.ENFORCING
        if not self._off:
            self._reactor.accept_tls(loaded.context, enforcing=enforcing)
            for take in self.takers:
                take(loaded.context)
        self._reactor.stats.tls_expires_s = loaded.expires_s
        days = 0
        if loaded.expires_s is not None:
            days = int((loaded.expires_s - self._clock.now_ms() / 1000) // DAY_S)
            if days < SOON_DAYS:
                cert = config.tls_server_cert_path
                warnings = [*warnings, f"tlsServerCertPath: {cert}: it ends in {days} days"]
        log.info(
            "tls.loaded",
            mode=config.tls_server_mode.value,
            certificate=config.tls_server_cert_path,
            ends_in_days=days,
        )
        for warning in warnings:
            log.warning("tls.doubtful", reason=warning)

    def _load(self) -> TlsContext:
        loaded = load(self._config)
        if self.http is not None:
            # Connections to come get it; this context lives as long as its listener.
            show(self.http, listeners_show(self._config))
        return loaded

    def _contents(self) -> Contents:
        config = self._config
        files = (
            config.tls_server_cert_path,
            config.tls_server_key_path,
            config.tls_server_trust_cert_path,
        )
        return tuple(map(_content, files))


def _content(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        return None
