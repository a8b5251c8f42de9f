"""A machine of its own with a real systemd as process 1, where the units are installed and run.

It is a tree with the built image's /opt/aerobee, booted by systemd-nspawn in namespaces of its own
with a loopback interface alone. Whatever a test writes there is gone with it.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit import image as images
from tests.kit.image import Image, mounted, need
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = "/root/aerobee"
"""Where the machine has this repository's `conf`, and where commands run."""
DOCKERFILE = images.ROOT / "tests" / "container" / "machine.Dockerfile"
BOOT_WITHIN_S = 60.0
RUN_WITHIN_S = 60.0
# The way it is told on a host whose own hierarchy is another one.
UNIFIED = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}


class Machine:
    """A machine that has booted; `leader` is its process 1 as this one counts."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root. Raises: AssertionError that shows what it printed."""
        enter = ["nsenter", "--target", str(self._leader), "--all", f"--wdns={SOURCES}"]
        done = subprocess.run(
            [*enter, "/bin/sh", "-e", "-c", script],
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
            env={"PATH": images.PATH, "LANG": "C.UTF-8"},
        )
        assert not check or done.returncode == 0, f"{script}:\n{done.stdout}\n{done.stderr}"
        return done

    def state(self, unit: str, name: str) -> str:
        """A property of a unit, as `systemctl show` prints it."""
        return self.run(f"systemctl show --value -p {name} {unit}").stdout.strip()

    def journal(self, unit: str) -> str:
        """All that a unit has logged."""
        return self.run(f"journalctl --no-pager -o cat -u {unit}").stdout


@contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """A machine, until the end of the block; its console is `machine.log` in `folder`."""
    need("systemd-nspawn", "nsenter")
    images.build()
    options = ["--layers", "--pull-never", "--isolation", "chroot", "--format", "docker"]
    trusted = ["--volume", f"{images.CERTIFICATES}:{images.CERTIFICATES}:ro"]
    name = "aerobee-machine:test"
    images.buildah("bud", *options, *trusted, "--tag", name, "--file", str(DOCKERFILE), str(folder))
    with mounted(Image(name)) as root:
        nspawn = ["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", "--private-network"]
        console = ["--console=pipe", f"--machine=aerobee-{os.getpid()}"]
        conf = f"--bind-ro={images.ROOT / 'conf'}:{SOURCES}/conf"
        command = [*nspawn, *console, conf, "--boot", "--directory", str(root)]
        with Child(command, log=folder / "machine.log", env=os.environ | UNIFIED) as child:
            leader = eventually(lambda: _first_of(child.pid), within_s=10.0, what="process 1")
            try:
                machine = Machine(leader)
                _wait_for_boot(machine)
                yield machine
            finally:
                # With its process 1 the whole of it ends, then nspawn.
                os.kill(leader, 9)
                child.wait(within_s=10.0)


def _first_of(pid: int) -> int:
    """The child that is process 1 of a namespace; nspawn has another one for a while."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            status = Path(f"/proc/{child}/status").read_text()
            if re.search(r"^NSpid:.*\t1$", status, re.MULTILINE):
                return int(child)
    return 0


def _wait_for_boot(machine: Machine) -> None:
    def state() -> bool:
        done = machine.run("systemctl is-system-running", check=False)
        return done.stdout.strip() in {"running", "degraded"}

    eventually(state, within_s=BOOT_WITHIN_S, what="a booted machine")
