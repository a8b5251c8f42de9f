"""A running container: the image's own configuration, carried out by runc.

It has a network of its own, joined to ours by a pair of interfaces, so that this machine is outside
of it. `publish` is what `-p` is to Docker: a port of this machine, carried to one of the container.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from tests.kit.image import need
from tests.kit.process import Child
from tests.kit.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.kit.image import Image

READY_WITHIN_S = 30.0
RUN_WITHIN_S = 30.0
NUMBERS = itertools.count()


class Network:
    """The network of one container: its name, and the address that the container has in it."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address


@contextmanager
def network() -> Iterator[Network]:
    """A network namespace that this machine reaches, and nothing else does."""
    need("ip")
    number = next(NUMBERS)
    name, ours, theirs = (f"ab{kind}{os.getpid()}-{number}" for kind in "nhc")
    # 198.18.0.0/15 is set apart for tests of networks.
    subnet = f"198.18.{os.getpid() % 256}"
    here, there = f"{subnet}.{4 * number + 1}", f"{subnet}.{4 * number + 2}"
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _run("ip", "address", "add", f"{here}/30", "dev", ours)
        _run("ip", "link", "set", ours, "up")
        for words in (
            ("address", "add", f"{there}/30", "dev", theirs),
            ("link", "set", theirs, "up"),
            ("link", "set", "lo", "up"),
        ):
            _run("ip", "-n", name, *words)
        yield Network(name, there)
    finally:
        # The interfaces go with the namespace.
        _run("ip", "netns", "delete", name)


class Container:
    """One container, from its start to its end."""

    def __init__(
        self,
        image: Image,
        root: Path,
        folder: Path,
        network: Network,
        *,
        mounts: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        user: str = "",
        command: Sequence[str] = (),
    ) -> None:
        """`root` is the tree of the image, read-only here; `mounts` are folders of this machine by
        their place in the container, `user` is uid or uid:gid, `command` stands for the image's.
        """
        need("runc")
        self.name = f"aerobee-{os.getpid()}-{next(NUMBERS)}"
        self.network = network
        self._state = folder / "state"
        bundle = folder / self.name
        bundle.mkdir(parents=True)
        config = image.config
        uid, _, gid = (user or config["User"]).partition(":")
        process = {
            "user": {"uid": int(uid), "gid": int(gid or uid)},
            "args": [*config["Entrypoint"], *(command or config["Cmd"])],
            "env": [*config["Env"], *(f"{name}={value}" for name, value in (env or {}).items())],
            "cwd": config["WorkingDir"],
            "noNewPrivileges": True,
        }
        specification = _specification(process, root, network, mounts or {})
        (bundle / "config.json").write_text(json.dumps(specification))
        run = ["run", "--bundle", str(bundle), self.name]
        self.child = Child([*self._runc(), *run], log=folder / f"{self.name}.log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.child.running:
            subprocess.run([*self._runc(), "delete", "--force", self.name], check=False)
        self.child.kill()

    def ready(self) -> str:
        """The line that says that it serves. Raises: DidNotStart."""
        return self.child.read_until("aerobee ready", within_s=READY_WITHIN_S)

    def signal(self, name: str) -> None:
        """A signal to its process 1."""
        _run(*self._runc(), "kill", self.name, name)

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as `docker exec` does."""
        return subprocess.run(
            [*self._runc(), "exec", self.name, *command],
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
        )

    @contextmanager
    def publish(self, ports: Mapping[tuple[str, int], int]) -> Iterator[None]:
        """Carry each address of this machine to a port of the container."""
        with ExitStack() as proxies:
            for at, port in ports.items():
                proxies.enter_context(TcpProxy(f"{self.network.address}:{port}", at=at))
            yield

    def _runc(self) -> list[str]:
        return ["runc", "--root", str(self._state)]


def _specification(
    process: Mapping[str, Any], root: Path, network: Network, mounts: Mapping[str, Path]
) -> dict[str, Any]:
    """The bundle's config.json: no capability, a read-only tree, and namespaces of its own."""
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    system = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
    ]
    bound = [
        {"destination": place, "type": "bind", "source": str(path), "options": ["rbind", "rw"]}
        for place, path in mounts.items()
    ]
    return {
        "ociVersion": "1.0.0",
        "process": process,
        "root": {"path": str(root), "readonly": True},
        "hostname": "container",
        "mounts": [*system, *bound],
        "linux": {
            "namespaces": [
                *namespaces,
                {"type": "network", "path": f"/var/run/netns/{network.name}"},
            ],
        },
    }


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
