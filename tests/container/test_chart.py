"""The Helm chart, rendered by Helm and read with the types of Kubernetes: `make image-test`.

Both programs come by the Go module proxy and are built once, which takes minutes.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.image

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "aerobee"
BIN = ROOT / ".cache" / "go" / "bin"
HELM = "helm.sh/helm/v3/cmd/helm@v3.16.4"
READER = Path(__file__).with_name("strict")
PLAIN = ROOT / "deploy" / "kubernetes"
NEW = "1.30.0"
BUILD_WITHIN_S = 900.0
RUN_WITHIN_S = 60.0
KINDS = {
    "apps/v1 StatefulSet",
    "networking.k8s.io/v1 NetworkPolicy",
    "policy/v1 PodDisruptionBudget",
    "v1 ConfigMap",
    "v1 Service",
    "v1 ServiceAccount",
}


@functools.cache
def helm() -> str:
    if found := shutil.which("helm"):
        return found
    if not (BIN / "helm").exists():
        go("install", HELM)
    return str(BIN / "helm")


def go(*arguments: str) -> None:
    """Run the Go command where the reader is; skips where it is missing or fails."""
    if shutil.which("go") is None:
        pytest.skip("chart: neither helm nor go is installed")
    BIN.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["env", f"GOBIN={BIN}", "go", *arguments],
        cwd=READER,
        capture_output=True,
        text=True,
        timeout=BUILD_WITHIN_S,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"chart: go {arguments[0]} failed: {done.stderr[-500:]}")


def template(
    *sets: str, name: str = "aerobee", version: str = NEW
) -> subprocess.CompletedProcess[str]:
    return render(*(word for one in sets for word in ("--set", one)), name=name, version=version)


def render(
    *options: str, name: str = "aerobee", version: str = NEW
) -> subprocess.CompletedProcess[str]:
    command = [helm(), "template", name, str(CHART), "--kube-version", version, *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False
    )


def read(manifests: str) -> set[str]:
    """The kinds that Kubernetes reads in it, nothing unknown left."""
    go("build", "-o", str(BIN / "manifests"), ".")
    done = subprocess.run(
        [BIN / "manifests"],
        input=manifests,
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return set(done.stdout.splitlines())


def of_kind(rendered: str, kind: str) -> Any:
    """The one manifest of a kind."""
    (found,) = (one for one in yaml.safe_load_all(rendered) if one["kind"] == kind)
    return found


def test_the_plain_manifests_are_what_the_chart_renders() -> None:
    plain = (PLAIN / "aerobee.yaml").read_text("utf-8")
    assert render("-f", str(PLAIN / "values.yaml")).stdout == plain, "make chart"
    assert read(plain) == KINDS


def test_every_value_set_gives_manifests_that_kubernetes_reads() -> None:
    rendered = template(
        "service.type=LoadBalancer",
        "service.nodePorts.broker=30911",
        "service.annotations.a=b",
        "advertisedHost=mq.example.com",
        "advertisedPort=30911",
        "secret=credentials",
        "config.flushDiskType=SYNC_FLUSH",
        "env[0].name=TZ,env[0].value=UTC",
        "persistence.storageClass=fast",
        "imagePullSecrets[0].name=registry",
        "podAnnotations.a=b",
        "nodeSelector.disk=ssd",
        "tolerations[0].key=broker",
        "priorityClassName=high",
        "networkPolicy.clients[0].namespaceSelector.matchLabels.team=shop",
        name="orders",
    ).stdout
    assert read(rendered) == KINDS
    for words in ("nodePort: 30911", "flushDiskType: SYNC_FLUSH", "secretName: credentials"):
        assert words in rendered
    assert 'value: "mq.example.com"' in rendered
    assert "AEROBEE_INSECURE" not in rendered


def test_two_releases_are_a_master_and_its_slave() -> None:
    """As docs/operations/container.md says it."""
    master = template(
        "insecure=true",
        "config.haPeers=10.244.0.0/16",
        "config.brokerRole=SYNC_MASTER",
        "config.inSyncReplicas=2",
        name="orders",
    ).stdout
    assert read(master) == KINDS
    assert master.count("containerPort: 10912") == master.count("port: ha, protocol") == 1
    assert 'value: "orders-aerobee"' in master
    slave = template(
        "insecure=true",
        "config.brokerName=orders-aerobee",
        "config.brokerRole=SLAVE",
        "config.brokerId=1",
        "config.haMasterAddress=orders-aerobee-headless.mq.svc:10912",
        "config.haPeers=10.244.0.0/16",
        "config.inSyncReplicas=2",
        name="orders-b",
    ).stdout
    assert read(slave) == KINDS
    # After an exchange of the roles each is sent to the port of the other.
    for one, named in ((master, "orders"), (slave, "orders-b")):
        assert f'value: "{named}-aerobee-headless.default.svc"' in one
        (service,) = re.findall(r"(?ms)^  name: \S+-headless$.*?(?=^---)", one)
        assert "port: 10912" in service
    assert 'value: "orders-aerobee"' in slave
    assert "name: orders-b-aerobee" in slave


GROUP = ("insecure=true", "members=3", "config.haPeers=198.18.0.0/15")
ETCD_URL = "config.etcdEndpoints=http://etcd:2379"


def test_three_members_are_a_group() -> None:
    rendered = template(*GROUP, ETCD_URL, name="orders").stdout
    assert read(rendered) == KINDS
    spec = of_kind(rendered, "StatefulSet")["spec"]
    assert (spec["replicas"], spec["ordinals"]["start"]) == (3, 1)
    # One that waits for the others must not keep them from starting.
    assert spec["podManagementPolicy"] == "Parallel"
    assert of_kind(rendered, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    spread = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert spread["preferredDuringSchedulingIgnoredDuringExecution"]
    assert "ordinals" not in of_kind(template("insecure=true").stdout, "StatefulSet")["spec"]
    outside = "advertisedHost=$(POD_NAME).mq.example.com"
    rendered = template(*GROUP, ETCD_URL, outside, "affinity.nodeAffinity.a=b").stdout
    assert 'value: "$(POD_NAME).mq.example.com"' in rendered
    assert "podAntiAffinity" not in rendered


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ((), "config.etcdEndpoints"),
        ((ETCD_URL, "config.haPeers=null"), "config.haPeers"),
        ((ETCD_URL, "config.brokerId=1"), "config.brokerId"),
        ((ETCD_URL, "config.failoverMembers=1"), "config.failoverMembers"),
        ((ETCD_URL, "advertisedHost=mq.example.com"), "$(POD_NAME)"),
        ((ETCD_URL, "members=8"), "members"),
    ],
)
def test_a_group_is_refused_without_what_it_needs(sets: tuple[str, ...], named: str) -> None:
    done = template(*GROUP, *sets)
    assert done.returncode != 0
    assert named in done.stderr


def test_pods_that_do_not_know_their_number_are_no_group() -> None:
    done = template(*GROUP, ETCD_URL, version="1.27.9")
    assert done.returncode != 0
    assert "Kubernetes 1.28" in done.stderr


def test_a_broker_for_everybody_needs_a_word() -> None:
    refused = template()
    assert refused.returncode != 0
    assert "secret to a Secret with credentials" in refused.stderr
    assert "insecure=true" in refused.stderr
    rendered = template("insecure=true").stdout
    assert "AEROBEE_INSECURE" in rendered
    assert read(rendered) == KINDS


def test_users_need_no_secret() -> None:
    rendered = template("config.authenticationEnabled=true").stdout
    assert "AEROBEE_INSECURE" not in rendered
    assert read(rendered) == KINDS


def test_for_the_prometheus_operator_there_is_a_monitor_if_asked_for() -> None:
    assert "kind: ServiceMonitor" in template("insecure=true", "serviceMonitor.enabled=true").stdout
    assert (
        "kind: NetworkPolicy" not in template("insecure=true", "networkPolicy.enabled=false").stdout
    )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("persistence.size=20", "persistence.size"),
        ("replicas=2", "replicas"),
        ("service.type=External", "service.type"),
        ("advertisedPort=70000", "advertisedPort"),
        ("config.grpc_port=8081", "grpc_port"),
        ("config.store.haPeers=10.0.0.1", "store"),
        ("config.listenPort=20911", "listenPort"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(wrong: str, named: str) -> None:
    done = template("insecure=true", wrong)
    assert done.returncode != 0
    assert named in done.stderr
