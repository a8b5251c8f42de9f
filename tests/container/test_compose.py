"""compose.yaml, started by podman-compose on the built image: `make image-test`.

In a network of its own, so that the ports of the file are free. Only the broker is started: the
images of Prometheus and Grafana are not built here; tests/test_monitoring.py runs Prometheus.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.kit import image as images
from tests.kit.image import need
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.image

FILE = images.ROOT / "compose.yaml"
HERE = {"services": {"aerobee": {"ulimits": {"nofile": 4_096}}}}
"""Where the tests run the limit on open files may be lower than what the file asks for."""
RUN = "--pull=never --no-healthcheck --ulimit nproc=1024:1024"
"""podman asks systemd to run health checks, which is not process 1 everywhere."""
WITHIN_S = 120
STOP_WITHIN_S = 5.0


class Compose:
    """The project of compose.yaml in a network namespace."""

    def __init__(self, folder: Path, network: str) -> None:
        self._inside = ["nsenter", f"--net=/run/netns/{network}"]
        self._podman = folder / "podman"
        places = f"--root {images.CACHE / 'storage'} --runroot {images.CACHE / 'run'}"
        text = f'exec podman {places} --runtime runc --cgroup-manager cgroupfs "$@"'
        self._podman.write_text(f"#!/bin/sh\n{text}\n")
        self._podman.chmod(0o755)
        self._here = folder / "here.yaml"
        self._here.write_text(yaml.safe_dump(HERE))
        self._project = network

    def __call__(self, *words: str) -> str:
        """Run a command of podman-compose."""
        files = ["-f", str(FILE), "-f", str(self._here), f"--podman-run-args={RUN}"]
        podman = ["--podman-path", str(self._podman), "-p", self._project]
        return self.inside("podman-compose", *podman, *files, *words)

    def aerobee(self, *words: str) -> str:
        """Run the command line where the ports of the file are published."""
        return self.inside(sys.executable, "-m", "aerobee", *words)

    def inside(self, *command: str) -> str:
        """What a command in the network prints. Raises: AssertionError that shows it."""
        done = subprocess.run(
            [*self._inside, *command],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def remove(self) -> None:
        """Its containers, its volumes and its network."""
        self("down", "-v")
        self.inside(str(self._podman), "network", "rm", f"{self._project}_default")

    def serves(self) -> bool:
        """Whether the broker is ready."""
        try:
            return "ok" in self.aerobee("healthcheck")
        except AssertionError:
            return False


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    need("podman", "podman-compose", "runc", "ip", "nsenter")
    images.build()
    name = yaml.safe_load(FILE.read_text("utf-8"))["services"]["aerobee"]["image"]
    images.buildah("tag", "aerobee:test", name)
    network = f"abcompose{os.getpid()}"
    subprocess.run(["ip", "netns", "add", network], check=True)
    try:
        subprocess.run(["ip", "-n", network, "link", "set", "lo", "up"], check=True)
        project = Compose(tmp_path, network)
        try:
            yield project
        finally:
            project.remove()
    finally:
        subprocess.run(["ip", "netns", "delete", network], check=True)


def test_what_was_sent_is_there_after_down_and_up(compose: Compose) -> None:
    compose("up", "-d", "--no-build", "aerobee")
    eventually(compose.serves, within_s=30.0, what="a broker that is ready", every_s=0.5)
    compose.aerobee("produce", "Orders", "paid")
    begun = time.monotonic()
    compose("stop", "aerobee")
    assert time.monotonic() - begun <= STOP_WITHIN_S
    compose("down")
    compose("up", "-d", "--no-build", "aerobee")
    eventually(compose.serves, within_s=30.0, what="a broker that is ready again", every_s=0.5)
    assert "paid" in compose.aerobee("consume", "Orders", "--from", "first", "--max", "1")
