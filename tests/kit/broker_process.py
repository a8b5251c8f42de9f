"""The real broker as a process of its own: `aerobee broker run` with small files and free ports.

It is up when it has printed its ready line, and every test ends it by its pid. The data directory
outlives the process, so `kill` and `start` again is a crash and a recovery.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import gettempdir

from tests.kit.ports import HOST, PortBlock, free_block, free_port
from tests.kit.process import Child, DidNotStart, Server

MiB = 1_048_576

SMALL_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 * MiB,
    "mappedFileSizeConsumeQueue": 20 * 1_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
}
"""What keeps a broker under test small enough to roll over its files often."""

PATIENT: dict[str, object] = {"waitTimeMillsInSendQueue": 20_000}
"""A test machine stands still for longer than the 200 ms after which a send is refused."""

ROOMY: dict[str, object] = {
    "diskMaxUsedSpaceRatio": "3MiB",
    "diskSpaceCleanForciblyRatio": "2MiB",
    "diskSpaceWarningLevelRatio": "1MiB",
}
"""Space to keep free: the disk of a test machine may be used to over 90 %."""


def is_of_the_machine(path: Path) -> bool:
    """Whether a path is on the disk of temporary files, and not on a test's own file system."""
    there = next(near for near in (path, *path.absolute().parents) if near.exists())
    return there.stat().st_dev == Path(gettempdir()).stat().st_dev


def with_accounts(user: str, secret: str) -> dict[str, object]:
    """The settings of a broker with access control, and its first user, who may everything."""
    return {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": json.dumps({"username": user, "password": secret}),
    }


START_WITHIN_S = 120.0
STOP_WITHIN_S = 60.0

READY = re.compile(
    r"aerobee ready broker=(?P<broker>\S+) namesrv=(?P<namesrv>\S+) data=(?P<data>.+) "
    r"recovered=(?P<recovered>.+) in (?P<elapsed_s>[\d.]+) s"
)


@dataclass(frozen=True, slots=True)
class Ready:
    """What the ready line says."""

    broker: str
    namesrv: str
    data: Path
    recovered: str
    elapsed_s: float


@dataclass(slots=True, kw_only=True)
class BrokerProcess(Server):
    """One data directory and the broker that serves it, run after run, on the same ports."""

    data: Path
    settings: Mapping[str, object] = field(default_factory=dict)
    """RocketMQ keys to values, on top of `SMALL_FILES`; None takes one away."""
    namesrv: str | None = None
    """A foreign name server; else only the embedded one."""
    ports: PortBlock = field(default_factory=free_block)
    namesrv_port: int = field(default_factory=free_port)
    env: Mapping[str, str] = field(default_factory=dict)
    log_path: Path | None = None
    """Where its stderr goes; beside the data directory unless told."""
    python: str = sys.executable
    """The interpreter that runs it."""
    host: str = HOST
    """Where it is reached."""
    network: str = ""
    """The network namespace that it runs in; ours unless told."""
    module: Sequence[str] = ("aerobee",)
    """What Python runs, with its first words; see `odd_broker` for others."""
    ready: Ready | None = None
    _child: Child | None = None

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return f"{self.host}:{self.ports.listen}"

    @property
    def namesrv_address(self) -> str:
        """`host:port` of the name server inside it."""
        return f"{self.host}:{self.namesrv_port}"

    @property
    def log(self) -> Path:
        """Its stderr, all runs one after the other."""
        return self.log_path or self.data.parent / f"{self.data.name}.log"

    def command(self) -> list[str]:
        """The command line of a run."""
        room = ROOMY if is_of_the_machine(self.data) else {}
        pairs = SMALL_FILES | PATIENT | room | self.port_settings() | dict(self.settings)
        sets = [f"--set={key}={value}" for key, value in pairs.items() if value is not None]
        names = [] if self.namesrv is None else ["-n", self.namesrv]
        # A compiled build that is installed goes before the sources in the current directory.
        safe = ["-P"] if self.python != sys.executable and is_compiled(self.python) else []
        there = ["ip", "netns", "exec", self.network] if self.network else []
        module = [*there, self.python, *safe, "-m", *self.module, "broker", "run"]
        return [*module, "--data", str(self.data), *names, *sets]

    def port_settings(self) -> dict[str, object]:
        """The keys that keep it away from everybody else's ports."""
        return {
            "listenPort": self.ports.listen,
            "vipListenPort": self.ports.vip,
            "namesrvListenPort": self.namesrv_port,
            "metricsPromExporterPort": self.ports.metrics,
            "consolePort": 0,
        }

    def launch(self) -> Child:
        """Run it and wait for nothing."""
        assert self._child is None or not self._child.running, "already running"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._child = Child(self.command(), log=self.log, env=self._environment())
        return self._child

    def let_run(self, seconds: float) -> None:
        """Leave it alone for that long, or until it ends by itself."""
        self.child.let_run(seconds)

    def start(self) -> Ready:
        """Run it and wait for the ready line. Raises: DidNotStart with exit code and last words."""
        child = self.launch()
        try:
            line = child.read_until("aerobee ready ", within_s=START_WITHIN_S)
        except DidNotStart:
            child.kill()
            raise
        self.ready = _parse(line)
        return self.ready

    def stop(self) -> int:
        """SIGTERM and its exit code. Raises: subprocess.TimeoutExpired after a minute."""
        return self.child.stop(within_s=STOP_WITHIN_S)

    def restart(self) -> Ready:
        """A clean stop and a start."""
        code = self.stop()
        assert code == 0, f"stopped with {code}:\n{self.child.errors()}"
        return self.start()

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AEROBEE_")}
        return inherited | {"PYTHONFAULTHANDLER": "1"} | dict(self.env)


@cache
def is_compiled(python: str) -> bool:
    """Whether a compiled build is installed for an interpreter."""
    command = [python, "-P", "-m", "aerobee", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().endswith(" compiled")


def _parse(line: str) -> Ready:
    found = READY.fullmatch(line)
    assert found, f"not the ready line: {line!r}"
    return Ready(
        broker=found["broker"],
        namesrv=found["namesrv"],
        data=Path(found["data"]),
        recovered=found["recovered"],
        elapsed_s=float(found["elapsed_s"]),
    )
