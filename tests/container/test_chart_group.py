"""The pods that the chart makes of a group, as Kubernetes would run them: `make image-test`.

No cluster: each pod is a process on a machine of its own, with the environment, the configuration
and the names that its manifest says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.container.test_chart import GROUP, of_kind, template
from tests.kit.etcd import EtcdNode
from tests.kit.health import probed
from tests.kit.machine_network import machine_network
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.machine_network import MachineNetwork

pytestmark = pytest.mark.image

NUMBERS: Final = (1, 2, 3)
MACHINES: Final = (*(f"p{number}" for number in NUMBERS), "etcd", "client")
TOPIC: Final = "orders"
BETWEEN: Final = 40
"""So many sends lie between two restarts."""
WITHIN_S: Final = 120.0
OF_THE_IMAGE: Final = {"AEROBEE_BIND_ADDRESS": "0.0.0.0"}


class Pod:
    """One of them: its command and its environment are those of the StatefulSet."""

    def __init__(
        self, rendered: str, number: int, network: MachineNetwork, folder: Path, config: Path
    ) -> None:
        manifest = of_kind(rendered, "StatefulSet")
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        self.name = f"{manifest['metadata']['name']}-{number}"
        fields = {
            "metadata.name": self.name,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
        }
        self._env = dict(OF_THE_IMAGE)
        for one in container["env"]:
            value = one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            self._env[one["name"]] = value.replace("$(POD_NAME)", self.name)
        assert container["args"][:3] == ["broker", "run", "--config"]
        self._words = [*container["args"][:3], str(config), "--data", str(folder / self.name)]
        self._space, self._address = network.spaces[f"p{number}"], network.addresses[f"p{number}"]
        probe = container["readinessProbe"]["httpGet"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        self._ready = f"http://{self._address}:{ports[probe['port']]}{probe['path']}"
        self._log = folder / f"{self.name}.log"
        self.child: Child | None = None

    def launch(self) -> None:
        """Run it and wait for nothing."""
        inside = ["ip", "netns", "exec", self._space, sys.executable, "-m", "aerobee"]
        self.child = Child([*inside, *self._words], log=self._log, env=os.environ | self._env)

    def until_ready(self) -> None:
        """Wait for its readiness probe."""
        eventually(self._is_ready, within_s=WITHIN_S, what=f"{self.name} is ready")

    def _is_ready(self) -> bool:
        assert self.child is not None
        assert self.child.running, self.child.errors()[-3_000:]
        try:
            return bool(probed(self._ready)["code"] == 200)
        except OSError:
            return False

    def restart(self) -> None:
        """As an update of the StatefulSet does."""
        assert self.child is not None
        assert self.child.stop(within_s=WITHIN_S) == 0, self.child.errors()[-3_000:]
        self.launch()
        self.until_ready()

    def end(self) -> None:
        """Gone."""
        if self.child is not None:
            self.child.kill()


@contextmanager
def names_known(network: MachineNetwork, rendered: str) -> Iterator[None]:
    """The names of the pods, as the headless Service gives them, on each machine."""
    name = of_kind(rendered, "StatefulSet")["metadata"]["name"]
    lines = ["127.0.0.1 localhost"]
    for number in NUMBERS:
        service = f"{name}-headless.default.svc"
        lines.append(f"{network.addresses[f'p{number}']} {name}-{number}.{service}")
    folders = [Path("/etc/netns") / space for space in network.spaces.values()]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text("\n".join(lines) + "\n")
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def messages(space: str, names: str) -> set[int]:
    """Those that a consumer finds."""
    command = ["ip", "netns", "exec", space, sys.executable, "-m", "aerobee"]
    words = ["consume", TOPIC, "--no-follow", "--jsonl", "-n", names]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {int(json.loads(line)["body"]) for line in done.stdout.splitlines()}


def test_the_pods_find_each_other_and_are_changed_one_by_one(tmp_path: Path) -> None:
    """The last one first, each once the one before is ready: no send fails, and none is lost."""
    with machine_network(MACHINES) as network, ExitStack() as stack:
        where, spaces = network.addresses, network.spaces
        etcd = EtcdNode(data=tmp_path / "etcd", host=where["etcd"], network=spaces["etcd"])
        stack.enter_context(etcd)
        rendered = template(*GROUP, f"config.etcdEndpoints={etcd.url}", name="orders").stdout
        stack.enter_context(names_known(network, rendered))
        config = tmp_path / "broker.yaml"
        config.write_text(of_kind(rendered, "ConfigMap")["data"]["broker.yaml"])
        pods = {number: Pod(rendered, number, network, tmp_path, config) for number in NUMBERS}
        for pod in pods.values():
            pod.launch()
            stack.callback(pod.end)
        for pod in pods.values():
            pod.until_ready()
        names = f"{where['p2']}:9876"
        inside = ["ip", "netns", "exec", spaces["client"], sys.executable, "-m"]
        sends = Child([*inside, "tests.kit.sends", names, TOPIC], log=tmp_path / "sends.log")
        stack.callback(sends.kill)
        acknowledged = 0

        def go_on() -> None:
            nonlocal acknowledged
            for _ in range(BETWEEN):
                line = sends.read_line(within_s=WITHIN_S)
                assert int(line.split()[0]) == acknowledged, line
                acknowledged += 1

        for number in reversed(NUMBERS):
            go_on()
            pods[number].restart()
        go_on()
        sends.kill()
        assert messages(spaces["client"], names) >= set(range(acknowledged))
