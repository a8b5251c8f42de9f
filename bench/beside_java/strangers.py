"""Redis Streams and NATS JetStream, for scale: other servers that take the same messages.

They promise other things than a broker of RocketMQ, which bench/README.md says beside the figures.
Redis is Debian's package, unpacked into the cache; NATS is compiled once from its Go module.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.beside_java.figures import REDIS
from bench.load import CACHE
from tests.kit.debian import environment, unpacked
from tests.kit.ports import HOST, free_port
from tests.kit.process import Child, Server
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NATS_MODULE = "github.com/nats-io/nats-server/v2@v2.12.2"
REDIS_LIBRARIES = ("liblzf1", "libjemalloc2")
START_WITHIN_S = 30.0
BUILT_WITHIN_S = 600.0


@dataclass(slots=True)
class Stranger(Server):
    """Such a server, on a directory of its own."""

    name: str
    data: Path
    sync: bool
    """Whether a message is on the disk before it is acknowledged."""
    port: int = field(default_factory=free_port)
    _child: Child | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Run it and wait until it listens."""
        self.data.mkdir(parents=True)
        command, env = (redis if self.name == REDIS else nats)(self)
        self._child = Child(command, log=self.data / "log", env=env, at=self.data)
        eventually(self.listens, within_s=START_WITHIN_S, what=self.name)

    def listens(self) -> bool:
        """Whether it takes connections."""
        with suppress(ConnectionRefusedError), socket.create_connection((HOST, self.port)):
            return True
        return False


def redis(server: Stranger) -> tuple[Sequence[str], Mapping[str, str]]:
    """Everything is in its append-only file, synced each second or before each answer."""
    root = unpacked("redis-tools", *REDIS_LIBRARIES)
    program = server.data / "redis-server"
    with suppress(FileExistsError):
        # One program, which is a server by its name.
        program.symlink_to(root / "usr" / "bin" / "redis-check-rdb")
    options = {
        "bind": HOST,
        "port": server.port,
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always" if server.sync else "everysec",
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return [str(program), *words], environment(root)


def nats(server: Stranger) -> tuple[Sequence[str], Mapping[str, str]]:
    """A stream in files, synced every two minutes, which is the default, or before each answer."""
    conf = server.data / "nats.conf"
    interval = "always" if server.sync else "2m"
    conf.write_text(
        f"listen: {server.address}\n"
        f"jetstream {{ store_dir: {server.data}, sync_interval: {interval} }}\n"
    )
    return [str(nats_program()), "-c", str(conf)], os.environ


def nats_program() -> Path:
    """The installed one, or one that is compiled into the cache."""
    if installed := shutil.which("nats-server"):
        return Path(installed)
    folder = CACHE / "go" / "bin"
    program = folder / "nats-server"
    if not program.exists():
        subprocess.run(
            ["go", "install", NATS_MODULE],
            env=os.environ | {"GOBIN": str(folder)},
            check=True,
            capture_output=True,
            timeout=BUILT_WITHIN_S,
        )
    return program
