"""`aerobee support bundle`: one file that has what helps, and none of the secrets."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aerobee import __version__
from aerobee.blocking import AdminClient, Credentials, Message, Producer
from aerobee.cli.border import DONE, exit_code_of
from aerobee.cli.main import run as run_line
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.ports import free_port

pytestmark = pytest.mark.service

ROOTS, BOBS, TOKEN, LOGGED, FILED, BODY = (
    f"{name}-secret-of-this-test" for name in ("root", "bob", "token", "logged", "filed", "body")
)
SECRETS = (ROOTS, BOBS, TOKEN, LOGGED, FILED, BODY)
SETTINGS = with_accounts("root", ROOTS) | {"metricsExporterType": "PROM"}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("support") / "data"
    settings = SETTINGS | {"metricsPromExporterPort": port}
    with BrokerProcess(data=data, settings=settings) as broker:
        with AdminClient(broker.namesrv_address, credentials=Credentials("root", ROOTS)) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_user("bob", BOBS)
        root = Credentials("root", ROOTS)
        with Producer(broker.namesrv_address, group="p", credentials=root) as producer:
            producer.send(Message("orders", BODY.encode(), keys=[BODY]))
        yield broker


def members(file: Path) -> dict[str, bytes]:
    """The files in a bundle."""
    with tarfile.open(file) as archive:
        return {
            one.name.removeprefix("aerobee-support/"): found.read()
            for one in archive
            if (found := archive.extractfile(one)) is not None
        }


@pytest.fixture
def call(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "root")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", ROOTS)

    def call(*words: str) -> tuple[int, str]:
        code = exit_code_of(run_line, ["support", "bundle", *words])
        out, err = capfd.readouterr()
        return code, out + err

    return call


def test_a_bundle_has_what_helps_and_no_secret(
    broker: BrokerProcess, call: Callable[..., tuple[int, str]], port: int, tmp_path: Path
) -> None:
    bundle, config, log = tmp_path / "b.tar.gz", tmp_path / "broker.yaml", tmp_path / "broker.log"
    bundle.touch(mode=0o644)
    user = json.dumps({"username": "root", "password": FILED})
    config.write_text(f"broker_name: filed\ninit_authentication_user: '{user}'\n")
    log.write_text(
        f"started with {ROOTS}\nsecurityToken={TOKEN}\n"
        f'{{"event": "x", "secretKey": "{LOGGED}"}}\npassword: {BOBS}\n'
    )
    words = ("-c", str(config), "--data", str(broker.data), "--log", str(log))
    code, said = call(str(bundle), *words, "--port", str(port), "--json")
    assert code == DONE, said
    assert bundle.stat().st_mode & 0o077 == 0
    found = members(bundle)
    everything = b"\n".join([*found.values(), said.encode(), *(name.encode() for name in found)])
    for secret in SECRETS:
        assert secret.encode() not in everything, secret
    assert json.loads(found["errors.json"]) == {}
    assert json.loads(found["about.json"])["aerobee"] == __version__
    (row,) = json.loads(found["cluster.json"])
    assert (row["state"], row["aerobee"]) == ("up", __version__)
    assert json.loads(found["tables.json"])["topics"] == 1
    assert json.loads(found["tables.json"])["users"] == 2
    settings = json.loads(found[f"brokers/{row['broker']}-0/settings.json"])
    assert settings["initAuthenticationUser"] == "***"
    assert settings["brokerName"] == row["broker"]
    assert b"filed" in found["settings.txt"]
    assert found["health/readyz.txt"].startswith(b"200\n")
    assert b"aerobee_build_info" in found["health/metrics.txt"]
    assert "commitlog" in json.loads(found["data.json"])["folders"]
    assert found["logs/0-broker.log"].startswith(b"started with ***\n")


def test_what_cannot_be_had_is_named_and_the_rest_is_there(
    call: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    bundle, config = tmp_path / "b.tar.gz", tmp_path / "broker.yaml"
    config.write_text(f"broker_nam: x\nsecret_key: {FILED}\n")
    code, said = call(
        str(bundle), "-n", nobody, "-c", str(config), "--port", str(free_port()), "--json"
    )
    assert code == DONE
    found = members(bundle)
    errors = json.loads(found["errors.json"])
    assert errors.keys() == {"cluster", "settings", "startupz", "livez", "readyz", "metrics"}
    assert "broker_nam" in errors["settings"]
    assert FILED not in said + json.dumps(errors)
    assert {"about.json", "errors.json"} == found.keys()
    assert io.BytesIO(bundle.read_bytes()).getvalue()[:2] == b"\x1f\x8b"
