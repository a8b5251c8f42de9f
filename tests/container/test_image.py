"""The image as it is built and run: `make image-test`. What runs here is what users get.

Each container has a read-only tree, no capability and a network of its own; clients are outside of
it. The first build takes minutes, for the base is made as well; the next one takes seconds.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from aerobee import ConsumeFrom, Message
from aerobee.blocking import Producer, PullConsumer
from tests.kit import image as images
from tests.kit.container import Container, network
from tests.kit.image import Image, mounted, tree_bytes
from tests.kit.ports import free_port
from tests.kit.process import DidNotStart
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.image

USER, ROOT_GROUP = 10_001, 0
LAYERS_MAX_BYTES = 80_000_000
STOP_WITHIN_S = 5.0
WRONG_CONFIGURATION, STORE_REFUSED = 2, 3
MANIFESTS = images.ROOT / "deploy" / "kubernetes" / "aerobee.yaml"
SMALL = {"AEROBEE_MAPPED_FILE_SIZE_COMMIT_LOG": "1048576", "AEROBEE_MAX_HASH_SLOT_NUM": "1000"}
OPEN = {**SMALL, "AEROBEE_INSECURE": "true"}


class Built(NamedTuple):
    base: Image
    ours: Image
    root: Path


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    base, ours = images.build()
    with mounted(ours) as root:
        yield Built(base, ours, root)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return owned(tmp_path / "data", USER, ROOT_GROUP, 0o770)


def owned(folder: Path, user: int, group: int, mode: int) -> Path:
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, user, group)
    return folder


@contextmanager
def running(
    built: Built,
    folder: Path,
    *,
    data: Path | None,
    env: Mapping[str, str] = OPEN,
    user: str = "",
    command: Sequence[str] = (),
) -> Iterator[Container]:
    mounts = {} if data is None else {"/data": data}
    with (
        network() as net,
        Container(
            built.ours, built.root, folder, net, mounts=mounts, env=env, user=user, command=command
        ) as container,
    ):
        yield container


def refusal(built: Built, folder: Path, data: Path | None, env: Mapping[str, str] = OPEN) -> str:
    """What a container says that does not start, on stderr."""
    with running(built, folder, data=data, env=env) as container:
        with pytest.raises(DidNotStart) as refused:
            container.ready()
        assert refused.value.exit_code in (WRONG_CONFIGURATION, STORE_REFUSED)
        return container.child.errors()


def round_trip(namesrv: str, topic: str = "Guests", body: bytes = b"hello") -> None:
    with Producer(namesrv, group="outside") as producer:
        sent = producer.send(Message(topic, body))
        with PullConsumer(f"g-{topic}", namesrv, start_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe(topic)
            assert next(iter(consumer)).body == body
    assert sent.message_id


def test_layers_above_the_base_are_small(built: Built) -> None:
    with mounted(built.base) as base:
        above = tree_bytes(built.root) - tree_bytes(base)
    print(f"layers above the base: {above / 1e6:.1f} MB")
    assert 0 < above <= LAYERS_MAX_BYTES


def test_labels_say_what_it_is_and_of_which_sources(built: Built) -> None:
    prefix = "org.opencontainers.image."
    labels = built.ours.config["Labels"]
    assert labels[f"{prefix}title"] == "Aerobee"
    assert labels[f"{prefix}revision"] == images.REVISION
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert labels[f"{prefix}source"]
    lib = built.root / "opt/aerobee/lib/python3.13/site-packages"
    assert (lib / f"aerobee-{labels[f'{prefix}version']}.dist-info").is_dir()


def test_the_bill_of_materials_lists_what_is_in_it(built: Built) -> None:
    bill = json.loads((built.root / "opt/aerobee/share/sbom.cdx.json").read_bytes())
    lib = built.root / "opt/aerobee/lib/python3.13/site-packages"
    found = {path.name.removesuffix(".dist-info").lower() for path in lib.glob("*.dist-info")}
    components = [*bill["components"], bill["metadata"]["component"]]
    # Those of npm are the scripts of the console; tests/test_supply_chain.py looks at them.
    packages = [one for one in components if one["purl"].startswith("pkg:pypi/")]
    listed = {f"{one['name'].replace('-', '_')}-{one['version']}" for one in packages}
    assert {one.lower() for one in listed} == found
    assert all(one["licenses"] for one in components)


def test_a_client_outside_works_with_one_setting(built: Built, tmp_path: Path, data: Path) -> None:
    # Of the loopback network, and no other test's: Docker would publish on any address.
    host = "127.0.77.1"
    env = {**OPEN, "AEROBEE_ADVERTISED_HOST": host}
    with running(built, tmp_path, data=data, env=env) as container:
        container.ready()
        ports = (9876, 10911, 10909, 5557)
        with container.publish({(host, port): port for port in ports}):
            round_trip(f"{host}:9876")


def test_a_client_outside_works_with_mapped_ports(built: Built, tmp_path: Path, data: Path) -> None:
    names, port = free_port(), free_port()
    host = "127.0.0.1"
    env = {**OPEN, "AEROBEE_ADVERTISED_HOST": host, "AEROBEE_ADVERTISED_PORT": str(port)}
    with running(built, tmp_path, data=data, env=env) as container:
        container.ready()
        with container.publish({(host, names): 9876, (host, port): 10911}):
            round_trip(f"{host}:{names}")
        assert "advertisedHost" not in container.child.errors()


def test_without_the_setting_the_log_names_it(built: Built, tmp_path: Path, data: Path) -> None:
    with running(built, tmp_path, data=data) as container:
        container.ready()
        assert "AEROBEE_ADVERTISED_HOST" in container.child.errors()
        # And a client in the network of the container works all the same.
        round_trip(f"{container.network.address}:9876")


def test_process_1_is_the_broker_and_stops_at_once_when_told(
    built: Built, tmp_path: Path, data: Path
) -> None:
    with running(built, tmp_path, data=data) as container:
        container.ready()
        told = container.execute("cat", "/proc/1/cmdline")
        assert "aerobee" in told.stdout
        round_trip(f"{container.network.address}:9876")
        begun = time.monotonic()
        container.signal("TERM")
        assert container.child.wait(within_s=STOP_WITHIN_S) == 0
        print(f"stopped in {time.monotonic() - begun:.2f} s")
    assert not (data / "abort").exists()
    with running(built, tmp_path, data=data) as container:
        assert "recovered=clean" in container.ready()


def test_the_health_check_is_true_while_it_serves(built: Built, tmp_path: Path, data: Path) -> None:
    kind, *check = built.ours.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    with running(built, tmp_path, data=data) as container:
        container.ready()
        well = eventually(
            lambda: container.execute(*check), within_s=10, what="the health check answers"
        )
        assert (well.returncode, well.stdout) == (0, "readyz of 127.0.0.1:5557: ok\n"), well.stderr
        probe = container.execute(*check, "--port", "1")
        assert probe.returncode == 4


def test_the_pod_of_the_manifests_starts(built: Built, tmp_path: Path, data: Path) -> None:
    """Its arguments, its environment and its configuration; the names are those of a cluster."""
    documents = list(yaml.safe_load_all(MANIFESTS.read_text("utf-8")))
    (stateful,) = (one for one in documents if one["kind"] == "StatefulSet")
    (settings,) = (one for one in documents if one["kind"] == "ConfigMap")
    (pod,) = stateful["spec"]["template"]["spec"]["containers"]
    config, hosts = tmp_path / "config", tmp_path / "hosts"
    config.mkdir()
    for name, text in settings["data"].items():
        (config / name).write_text(text)
    env = {one["name"]: one["value"] for one in pod["env"]}
    secret = tmp_path / "secret"
    secret.mkdir()
    accounts = secret / "plain_acl.yml"
    accounts.write_text("accounts: [{accessKey: the-admin, secretKey: 12345678, admin: true}]\n")
    # As a Secret is mounted: of root, and of the pod's group.
    os.chown(accounts, 0, 10_001)
    accounts.chmod(0o440)
    with network() as net:
        hosts.write_text(f"{net.address} {env['AEROBEE_ADVERTISED_HOST']}\n")
        places = {one["name"]: one["mountPath"] for one in pod["volumeMounts"]}
        mounts = {places["data"]: data, places["config"]: config, "/etc/hosts": hosts}
        mounts[places["secret"]] = secret
        container = Container(
            built.ours,
            built.root,
            tmp_path,
            net,
            mounts=mounts,
            env={**env, **SMALL},
            command=pod["args"],
        )
        with container:
            container.ready()
            for probe in ("startupz", "livez", "readyz"):
                asked = container.execute("aerobee", "healthcheck", "--probe", probe)
                assert asked.returncode == 0, asked.stdout


def test_without_a_mount_it_refuses_and_says_what_to_do(built: Built, tmp_path: Path) -> None:
    said = refusal(built, tmp_path, data=None)
    assert "store.ephemeral" in said
    assert "mount a volume there, or say --ephemeral" in said


def test_for_everybody_needs_a_word(built: Built, tmp_path: Path, data: Path) -> None:
    assert "insecure" in refusal(built, tmp_path, data, SMALL)


def test_any_user_of_group_0_may_run_it(built: Built, tmp_path: Path, data: Path) -> None:
    with running(built, tmp_path, data=data, user="54321:0") as container:
        container.ready()
        round_trip(f"{container.network.address}:9876")
        container.signal("TERM")
        assert container.child.wait(within_s=STOP_WITHIN_S) == 0


def test_a_folder_of_somebody_else_is_refused_with_the_remedy(built: Built, tmp_path: Path) -> None:
    said = refusal(built, tmp_path, data=owned(tmp_path / "data", 0, 0, 0o755))
    assert f"chown -R {USER} /data" in said


def test_compiled_files_carry_no_time(built: Built) -> None:
    """What differs between two images has changed: bit 0 of the flags says hash, not time."""
    compiled = list((built.root / "opt/aerobee/lib").rglob("*.pyc"))
    assert len(compiled) > 500
    assert {path.read_bytes()[4] & 1 for path in compiled} == {1}


def test_what_builds_is_not_in_what_runs(built: Built) -> None:
    names = {path.name.partition("-")[0] for path in (built.root / "opt").rglob("*.dist-info")}
    assert "aerobee" in names
    assert not names & {"pip", "hatchling", "setuptools", "pytest"}
