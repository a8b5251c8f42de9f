"""A real Prometheus for tests: its programs, and a server that scrapes one target.

The programs are those on the PATH, or of Debian's package, which is unpacked into the cache of this
checkout: nothing is installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.kit.debian import unpacked
from tests.kit.ports import free_port
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_WITHIN_S = 60.0
ANSWER_WITHIN_S = 10.0


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`; the test is skipped where neither way leads to it."""
    return shutil.which(name) or str(unpacked("prometheus") / "usr" / "bin" / name)


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    return subprocess.run(
        [program("promtool"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **query: str) -> Any:
        """The `data` of an answer of the HTTP API. Raises: OSError."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=ANSWER_WITHIN_S) as answer:
            return json.load(answer)["data"]

    def series(self, expression: str) -> list[Any]:
        """What an expression gives now. Raises: OSError, also for one that is not valid."""
        return list(self.get("query", query=expression)["result"])

    def scrapes(self) -> float:
        """Scrapes that succeeded so far."""
        found = self.series("count_over_time(up[1h]) and on() (up == 1)")
        return float(found[0]["value"][1]) if found else 0.0


@contextmanager
def serving(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """A server that scrapes `target` (host:port) each second and evaluates these rules."""
    port = free_port()
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "aerobee", "static_configs": [{"targets": [target]}]}],
    }
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(settings))
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with Child(command, log=folder / "prometheus.log"):
        server = Prometheus(port)
        eventually(lambda: _ready(port), within_s=30, what="Prometheus is ready")
        yield server


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
