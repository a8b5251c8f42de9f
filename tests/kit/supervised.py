"""Several brokers of one configuration under their supervisor, as a test starts and ends them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.broker_process import BrokerProcess
from tests.kit.health import probed
from tests.kit.ports import PortBlock, free_row
from tests.kit.waiting import eventually

BROKERS_MOST = 3
OWN_NAME = b"--member=brokerName="


@dataclass(slots=True, kw_only=True)
class Supervised(BrokerProcess):
    """`brokers` of them: the process is the supervisor, its data directory holds theirs."""

    ports: PortBlock = field(default_factory=lambda: free_row(BROKERS_MOST + 1))
    brokers: int = 2

    def __post_init__(self) -> None:
        # Of their own row, at which no broker listens.
        self.namesrv_port = self.ports.ha

    def port_settings(self) -> dict[str, object]:
        """The keys that keep them away from everybody else's ports."""
        # Not the method of `super()`: a class with slots is another one by then.
        return {
            **BrokerProcess.port_settings(self),
            "brokers": self.brokers,
            "brokerName": "b",
        }

    def pids(self) -> dict[str, int]:
        """Name of a broker → its process now, of those that run."""
        found: dict[str, int] = {}
        pid = self.child.pid
        children = Path(f"/proc/{pid}/task").glob("*/children")
        for one in " ".join(file.read_text() for file in children).split():
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
            for word in words:
                if word.startswith(OWN_NAME):
                    found[word.removeprefix(OWN_NAME).decode()] = int(one)
        return found

    def health(self, probe: str = "readyz") -> dict[str, Any]:
        """The answer of a probe, with its status as `code`."""
        return probed(f"http://127.0.0.1:{self.ports.metrics}/{probe}")

    def await_ready(self) -> None:
        """Wait until every broker is ready."""
        eventually(lambda: self.health()["code"] == 200, within_s=30, what="all brokers are ready")
