"""The real name server as a process of its own: `aerobee nameserver run` on free ports."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.ports import HOST, free_port
from tests.kit.process import Child, DidNotStart, Server

START_WITHIN_S = 120.0
STOP_WITHIN_S = 60.0


@dataclass(slots=True, kw_only=True)
class NamesrvProcess(Server):
    """One data directory and the name server on it, run after run, on the same ports."""

    data: Path
    port: int = field(default_factory=free_port)
    metrics_port: int = 0
    """0: no probes."""
    settings: Mapping[str, object] = field(default_factory=dict)
    file: Path | None = None
    """Its configuration file."""
    ready: str = ""
    """The line that it prints when it serves."""
    _child: Child | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def command(self) -> list[str]:
        """The command line of a run."""
        pairs = {"metricsPromExporterPort": self.metrics_port, **self.settings}
        sets = [f"--set={key}={value}" for key, value in pairs.items()]
        words = ["nameserver", "run", "--port", str(self.port), "--data", str(self.data)]
        file = [] if self.file is None else ["-c", str(self.file)]
        return [sys.executable, "-m", "aerobee", *words, *file, *sets]

    def start(self) -> None:
        """Run it and wait for the ready line. Raises: DidNotStart with exit code and last words."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        log = self.data.with_name(f"{self.data.name}.log")
        self._child = Child(self.command(), log=log)
        try:
            self.ready = self._child.read_until("aerobee ready ", within_s=START_WITHIN_S)
        except DidNotStart:
            self._child.kill()
            raise

    def stop(self) -> int:
        """SIGTERM and its exit code."""
        return self.child.stop(within_s=STOP_WITHIN_S)
