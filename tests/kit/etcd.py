"""The real etcd, one node or several, each a process of its own on free ports of 127.0.0.1.

The program is Debian's `etcd-server`, fetched and unpacked once, and not installed.
AEROBEE_TEST_ETCD names another one. Where it is not to be had, the test is skipped with the reason;
with AEROBEE_CI=1 it fails.
"""

import functools
import http.client
import json
import os
import shutil
import signal
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.debian import unpacked
from tests.kit.java import unavailable
from tests.kit.ports import HOST, free_port
from tests.kit.process import Child
from tests.kit.waiting import eventually

START_WITHIN_S = 30.0
ASK_WITHIN_S = 5.0
SIGN_IN = "/v3/auth/authenticate"


@functools.cache
def program() -> Path:
    """The program; skips where it cannot be had."""
    if given := os.environ.get("AEROBEE_TEST_ETCD"):
        if not Path(given).is_file():
            unavailable(f"AEROBEE_TEST_ETCD is {given}, and no file")
        return Path(given)
    if installed := shutil.which("etcd"):
        return Path(installed)
    return unpacked("etcd-server") / "usr" / "bin" / "etcd"


@dataclass(slots=True, kw_only=True)
class EtcdNode:
    """One member and its data directory, run after run, on the same ports."""

    data: Path
    name: str = "n1"
    port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    tls: Sequence[str] = ()
    """Further options, for TLS."""
    options: Sequence[str] = ()
    """Further options."""
    context: ssl.SSLContext | None = None
    """With TLS, how the test itself asks; without one it looks at the log only."""
    account: tuple[str, str] | None = None
    """The user and password by which the test asks, once etcd wants one."""
    peers: str = ""
    """The `--initial-cluster` of several nodes."""
    host: str = HOST
    """Where it is reached."""
    network: str = ""
    """The network namespace that it runs in; ours unless told."""
    _child: Child | None = None

    def __enter__(self) -> "EtcdNode":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http{'s' if self.tls else ''}://{self.host}:{self.port}"

    @property
    def peer(self) -> str:
        """Its part of `--initial-cluster`."""
        return f"{self.name}=http://{self.host}:{self.peer_port}"

    def launch(self) -> None:
        """Run it; it may wait for its peers."""
        peer_url = self.peer.partition("=")[2]
        options = {
            "name": self.name,
            "data-dir": self.data,
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": self.peers or self.peer,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        # It reads its options from ETCD_… as well.
        env = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        env |= {"ETCD_UNSUPPORTED_ARCH": "arm64"}
        log = self.data.with_name(f"{self.data.name}.log")
        there = ["ip", "netns", "exec", self.network] if self.network else []
        self._child = Child(
            [*there, str(program()), *words, *self.tls, *self.options], log=log, env=env
        )

    def start(self) -> None:
        """Run it and wait until it answers."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until it answers, which it does once it has a leader."""
        if self.tls and self.context is None:
            eventually(
                lambda: (
                    self._child is not None and "serving client requests" in self._child.errors()
                ),
                within_s=START_WITHIN_S,
                what="etcd serves",
            )
            return
        eventually(self._answers, within_s=START_WITHIN_S, what="etcd answers")

    def _answers(self) -> bool:
        try:
            self.ask("/v3/kv/range", {"key": "AA=="})
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return True

    def ask(self, path: str, body: dict[str, Any], token: str = "") -> Any:
        """One call; `token` of a user that has signed in, else the account does.

        Raises: OSError, HTTPException, ValueError.
        """
        if self.account is not None and not token and path != SIGN_IN:
            name, password = self.account
            token = self.ask(SIGN_IN, {"name": name, "password": password})["token"]
        connection = self._connection()
        try:
            headers = {"Authorization": token} if token else {}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise ValueError(f"{answer.status}: {answer.read()[:200]!r}")
            return json.loads(answer.read())
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=ASK_WITHIN_S)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=ASK_WITHIN_S, context=self.context
        )

    def stand_still(self) -> None:
        """SIGSTOP: it takes connections and answers nothing."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGSTOP)

    def come_back(self) -> None:
        """SIGCONT, or a start of one that was killed."""
        if self._child is None:
            self.start()
        else:
            os.kill(self._child.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._child is not None:
            self._child.kill()
            self._child = None


def nodes(
    directory: Path, count: int, tls: Sequence[str] = (), context: ssl.SSLContext | None = None
) -> list[EtcdNode]:
    """Several that will be one cluster; none runs yet."""
    cluster = [
        EtcdNode(data=directory / f"n{i}", name=f"n{i}", tls=tls, context=context)
        for i in range(1, count + 1)
    ]
    for node in cluster:
        node.peers = ",".join(other.peer for other in cluster)
    return cluster
