"""A real broker inside the process of your tests: no imitation, nothing to install, nothing left.

    from aerobee.testing import broker

    def test_an_order_arrives():
        with broker() as running:
            with aerobee.blocking.Client(running.namesrv) as client:
                ...

It runs in a thread of its own, on free ports of 127.0.0.1 and in a temporary directory, so any
client in any language can connect to it. With `virtual_time=True` tests control its clock:
`advance(3600)` makes an hour pass, with everything that is due in it.
For pytest: `pytest_plugins = ["aerobee.testing.plugin"]`, then the fixture `aerobee_broker`.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.controller import BrokerController
    from aerobee.store.files.disk import Disk
    from aerobee.testing.virtual_time import VirtualTime

__all__ = ["TestBroker", "broker"]

HOST: Final = "127.0.0.1"
SMALL: Final = {
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "300000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "metricsExporterType": "DISABLE",
    "consolePort": 0,
    "brokerIP1": HOST,
}
"""Settings for a quick start and small files; `settings` may override each of them."""
STOP_S: Final = 60.0
"""The timeout of a stop."""


class TestBroker:
    """A running broker. `namesrv` is the address for clients."""

    __test__ = False

    def __init__(self, data: Path, settings: Mapping[str, object], *, virtual_time: bool) -> None:
        self.data = data
        """The data directory."""
        self.port, self.namesrv_port = _free_ports(2)
        self._settings = settings
        self._virtual = virtual_time
        self._life: Future[bool] | None = None
        self._controller: BrokerController | None = None
        self._time: VirtualTime | None = None
        self._clean = False

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server."""
        return f"{HOST}:{self.namesrv_port}"

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start, and return when the broker serves. Raises: the error of a failed start."""
        if self._life is not None:
            raise RuntimeError("this broker runs already")
        _logs_to_logging()
        config = self._config()
        began = threading.Event()
        thread = ThreadPoolExecutor(1, "aerobee-broker")
        self._life = thread.submit(self._run, config, began.set)
        thread.shutdown(wait=False)
        self._life.add_done_callback(lambda _: began.set())
        began.wait()
        if self._life.done():
            self.stop()

    def stop(self) -> bool:
        """Stop as on SIGTERM; returns whether the shutdown was clean, this or the last time.

        Raises: the error of a failed broker, TimeoutError.
        """
        life, self._life = self._life, None
        if life is None:
            return self._clean
        if self._time is not None and self._controller is not None:
            self._time.call(self._controller.stop)
        failure = life.exception(STOP_S)
        if failure is not None:
            raise _only(failure)
        self._clean = life.result()
        return self._clean

    def restart(self) -> None:
        """Stop and start again, with the same directory and ports."""
        self.stop()
        self.start()

    def advance(self, seconds: float, *, jumps: int = 100) -> None:
        """Let `seconds` pass at once, in `jumps` steps; needs `virtual_time=True`.

        After each step the broker does what is due before the next one. Raises: ValueError for a
        time that is no number or lies behind, and for less than one jump.
        """
        if not (0 <= seconds < inf and jumps >= 1):
            raise ValueError(f"advance: {seconds} seconds in {jumps} jumps")
        if not self._virtual or self._time is None:
            raise RuntimeError("this broker runs in real time: start it with virtual_time=True")
        self._time.advance(seconds, jumps)

    def now_ms(self) -> int:
        """The broker's wall clock in ms, as in its store timestamps."""
        if self._time is None:
            raise RuntimeError("this broker has not been started")
        return self._time.now_ms()

    # ── Inside ──

    def _config(self) -> BrokerConfig:
        from aerobee.broker.config.load import load_config

        settings = {
            **SMALL,
            "listenPort": self.port,
            "vipListenPort": 0,
            "namesrvListenPort": self.namesrv_port,
            "storePathRootDir": self.data,
            **self._settings,
        }
        return load_config(
            None,
            environ={},
            overrides=[f"{key}={_text(value)}" for key, value in settings.items()],
            cpu_count=1,
            host_addresses=[HOST],
        )

    def _run(self, config: BrokerConfig, ready: Callable[[], None]) -> bool:
        """Run the broker once, in its own thread."""
        import trio

        from aerobee.testing.virtual_time import VirtualTime

        self._time = VirtualTime(manual=self._virtual, after=self._time)
        return trio.run(self._serve, config, self._time, ready, clock=self._time.clock)

    async def _serve(
        self, config: BrokerConfig, time: VirtualTime, ready: Callable[[], None]
    ) -> bool:
        from aerobee.broker.controller import BrokerController

        time.enter()
        self._controller = BrokerController(config, disk=self._disk(), clock=time)
        return await self._controller.run(lambda _: ready())

    def _disk(self) -> Disk:
        from aerobee.store.files.disk import Disk

        return Disk()


@contextmanager
def broker(
    data: Path | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    virtual_time: bool = False,
) -> Iterator[TestBroker]:
    """Run a broker inside the `with` block; it is stopped and its files are removed at the end.

    `data`: a directory of your own, which is kept. `settings`: RocketMQ's keys, as in `--set`.
    Raises: ConfigurationError, StoreRefused, OSError when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="aerobee-") as directory:
        running = TestBroker(data or Path(directory), settings or {}, virtual_time=virtual_time)
        running.start()
        try:
            yield running
        finally:
            running.stop()


def _free_ports(count: int) -> list[int]:
    """Ports of HOST that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _only(error: BaseException) -> BaseException:
    """The one error inside nested groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _logs_to_logging() -> None:
    """Send the broker's events to the standard `logging`, where pytest shows them on failure.

    Not if structlog is configured: then they go where its configuration says.
    """
    import structlog

    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
