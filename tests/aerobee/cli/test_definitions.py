"""`aerobee definitions`: what one broker has is brought to another, once and without secrets."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.blocking import AdminClient, Credentials
from aerobee.cli.border import DONE, FAILED, REFUSED, WRONG_USAGE, exit_code_of
from aerobee.cli.main import run as run_line
from aerobee.errors import RequestTimeoutError
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.file_limit import files_of_at_most

pytestmark = pytest.mark.service

SECRET = "root-secret-of-this-test"
BOBS = "bobs-secret-of-this-test"
SETTINGS = with_accounts("root", SECRET)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker on which somebody has defined things."""
    data = tmp_path_factory.mktemp("from") / "data"
    with BrokerProcess(data=data, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A new one, with another name."""
    data = tmp_path_factory.mktemp("to") / "data"
    with BrokerProcess(data=data, settings=SETTINGS | {"brokerName": "other"}) as broker:
        yield broker


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "root")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", SECRET)

    def call(broker: BrokerProcess, *words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
        code = exit_code_of(run_line, list(words))
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def defined(source: BrokerProcess) -> BrokerProcess:
    """The first one with a topic, a group, a user and a policy."""
    with AdminClient(source.namesrv_address, credentials=Credentials("root", SECRET)) as admin:
        (broker,) = admin.cluster_info().brokers
        settings: dict[str, Any] = {
            "readQueueNums": 5,
            "writeQueueNums": 3,
            "perm": 4,
            "order": True,
            "attributes": {"message.type": "FIFO"},
        }
        admin.define_topic("orders", broker.name, settings)
        policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5_000}}
        group = {
            "retryMaxTimes": 3,
            "consumeEnable": False,
            "groupRetryPolicy": policy,
            "attributes": {"aerobee.max.rate": "500", "priority.factor": "0"},
        }
        admin.define_group("billing", broker.name, group)
        admin.create_user("bob", BOBS)
        admin.change_user("bob", enabled=False)
        admin.grant("bob", "Topic:orders*", ["Sub", "Pub"], sources=["10.0.0.0/8"])
        admin.grant("bob", "Group:billing", ["Sub"], deny=True, default=True)
    return source


def test_a_cluster_gets_what_another_has_once_and_without_secrets(
    defined: BrokerProcess, target: BrokerProcess, call: Call, tmp_path: Path
) -> None:
    file, secrets = tmp_path / "definitions.json", tmp_path / "secrets.json"
    assert call(defined, "definitions", "export", str(file))[0] == DONE
    text = file.read_text()
    assert SECRET not in text
    assert BOBS not in text
    exported = json.loads(text)
    assert exported["aerobee_definitions"] == 1
    assert [*exported["topics"]] == ["orders"]
    [billing] = exported["groups"]["billing"].values()
    assert billing["attributes"] == {"aerobee.max.rate": "500", "priority.factor": "0"}
    assert call(defined, "definitions", "export", "--only", "topics")[1].startswith("{")
    assert call(defined, "definitions", "diff", str(file))[:2] == (DONE, "nothing differs\n")

    words = ("definitions", "import", str(file))
    code, out, err = call(target, *words, "--dry-run", "--json")
    changes = [(row["kind"], row["name"], row["change"]) for row in json.loads(out)]
    assert changes == [("topic", "orders", "create"), ("group", "billing", "create")]
    assert (code, "user bob is left out" in err) == (FAILED, True)
    assert call(target, "definitions", "diff", str(file))[0] == FAILED
    secrets.write_text(json.dumps({"bob": BOBS}))
    code, out, err = call(target, *words, "--secrets", str(secrets), "--yes")
    assert (code, err) == (DONE, "")
    assert BOBS not in out
    assert call(target, *words, "--yes")[:2] == (DONE, "nothing to change\n")
    assert call(target, "definitions", "diff", str(file))[0] == DONE

    code, out, _ = call(target, "definitions", "export")
    again = json.loads(out)
    for kind in ("topics", "groups", "users", "policies"):
        here = {name: [*one.values()] for name, one in again[kind].items()}
        assert here == {name: [*one.values()] for name, one in exported[kind].items()}, kind


def test_a_user_that_is_to_be_disabled_is_so_at_the_brokers_that_made_it(
    target: BrokerProcess, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that is silent has the creation fail; its master has the user by then."""
    file, secrets = tmp_path / "definitions.json", tmp_path / "secrets.json"
    eve = {"eve": {"other": {"super": False, "enabled": False}}}
    file.write_text(json.dumps({"aerobee_definitions": 1, "users": eve}))
    secrets.write_text(json.dumps({"eve": BOBS}))
    create_user = AdminClient.create_user

    def half(*args: Any, **options: Any) -> None:
        create_user(*args, **options)
        raise RequestTimeoutError("no answer within 5 s")

    monkeypatch.setattr(AdminClient, "create_user", half)
    words = ("definitions", "import", str(file), "--secrets", str(secrets), "--yes")
    assert call(target, *words)[0] != DONE
    _, out, _ = call(target, "users", "list", "--json")
    assert [row["enabled"] for row in json.loads(out) if row["name"] == "eve"] == [False]
    with AdminClient(target.namesrv_address, credentials=Credentials("root", SECRET)) as admin:
        admin.delete_user("eve")


def test_what_a_file_does_not_name_stays_and_what_is_wrong_is_named(
    defined: BrokerProcess, call: Call, tmp_path: Path
) -> None:
    file = tmp_path / "some.json"

    def asked(**kinds: object) -> tuple[int, str, str]:
        file.write_text(json.dumps({"aerobee_definitions": 1, **kinds}))
        return call(defined, "definitions", "import", str(file), "--yes")

    assert asked(topics={"orders": {"any": {"perm": 6}}})[0] == DONE
    _, out, _ = call(defined, "definitions", "export", "--only", "topics")
    (orders,) = json.loads(out)["topics"]["orders"].values()
    assert (orders["perm"], orders["readQueueNums"], orders["order"]) == (6, 5, True)
    for kinds, said in (
        ({"topics": {"a b": {"x": {}}}}, "a b"),
        ({"topics": {"t": {"x": {"queues": 3}}}}, "there is no setting 'queues'"),
        ({"topics": {"t": {"x": {"perm": "six"}}}}, "$.perm"),
        ({"topics": {"t": {"x": {"readQueueNums": 10**9}}}}, "1 to"),
        ({"groups": {"g": {"x": {"groupName": "other"}}}}, "there is no setting 'groupName'"),
        ({"groups": {"g": {"x": {"retryMaxTimes": -5}}}}, "not valid"),
        ({"policies": {"bob": {"x": {"Topic:t": {}}}}}, "policy of bob on 'Topic:t'"),
        ({"users": {"bob": {"x": {"secret": "s"}}}}, "user bob: it has super and enabled"),
    ):
        code, _, err = asked(**kinds)
        assert code in (WRONG_USAGE, FAILED), said
        assert said in err
        assert "Traceback" not in err
        if "not valid" not in said:  # Only the broker knows that.
            tried = call(defined, "definitions", "import", str(file), "--dry-run")
            assert (tried[0], said in tried[2]) == (code, True), said


def test_a_file_with_a_fault_changes_nothing(
    defined: BrokerProcess, call: Call, tmp_path: Path
) -> None:
    file = tmp_path / "half.json"
    settings: dict[str, Any] = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    topics = {"first": {"any": settings}, "second": {"any": {**settings, "perm": 99}}}
    file.write_text(json.dumps({"aerobee_definitions": 1, "topics": topics}))
    code, _, err = call(defined, "definitions", "import", str(file), "--yes")
    assert (code, "perm" in err) == (WRONG_USAGE, True)
    _, out, _ = call(defined, "topic", "list")
    assert "first" not in out.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="another system has no /sys")
def test_a_file_that_nobody_may_make_is_5(call: Call, defined: BrokerProcess) -> None:
    code, _, err = call(defined, "definitions", "export", "/sys/definitions")
    assert (code, err.startswith("aerobee: /sys/definitions: ")) == (REFUSED, True)


def test_only_the_bare_dash_is_stdout(
    call: Call, defined: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(defined, "definitions", "export", "./-") == (DONE, "", "")
    written = json.loads(Path("./-").read_text())
    code, out, _ = call(defined, "definitions", "export", "-")
    assert (code, json.loads(out)["topics"]) == (DONE, written["topics"])


def test_an_export_that_fails_leaves_the_earlier_one(
    call: Call, defined: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    assert call(defined, "definitions", "export", str(file))[0] == DONE
    before = file.read_bytes()
    file.chmod(0o640)
    with files_of_at_most(500):
        code, _, err = call(defined, "definitions", "export", str(file))
    assert (code, err) == (FAILED, f"aerobee: {file}: File too large\n")
    assert file.read_bytes() == before
    assert call(defined, "definitions", "export", str(file))[0] == DONE
    assert file.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [file]
