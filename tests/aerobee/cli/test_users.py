"""Users, rights and the audit log on a broker process with access control, from the outside."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aerobee.blocking import AdminClient, Credentials, Message, Producer
from aerobee.cli.border import FAILED, REFUSED, exit_code_of
from aerobee.cli.main import run as run_line
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.request_signature import signature
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.process import DidNotStart
from tests.kit.raw_client import Closed, RawConnection, pull_fields, topic_fields

pytestmark = pytest.mark.service

SECRET = "root-secret-of-this-test"
ROOT = Credentials("root", SECRET)
SETTINGS = with_accounts("root", SECRET)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("users") / "data"
    with BrokerProcess(data=data, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[AdminClient]:
    with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
        yield admin


@pytest.fixture
def call(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, output, errors."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "root")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", SECRET)

    def call(*words: str) -> tuple[int, str, str]:
        code = exit_code_of(run_line, list(words))
        out, err = capfd.readouterr()
        return code, out, err

    return call


@contextmanager
def producer(broker: BrokerProcess, name: str, secret: str) -> Iterator[Producer]:
    account = Credentials(name, secret)
    with Producer(broker.namesrv_address, credentials=account) as producer:
        yield producer


def ask(connection: RawConnection, code: int, name: str, secret: str, ext: Any = ()) -> Any:
    """A signed request of a client that is not ours."""
    fields = {key: str(value) for key, value in dict(ext).items()} | {"AccessKey": name}
    fields["Signature"] = signature(secret.encode(), fields, b"")
    return connection.call(code, fields)


AUDIT = ("admin.changed", "admin.refused")


def audit(broker: BrokerProcess) -> list[dict[str, Any]]:
    lines = (line for line in broker.log.read_text().splitlines() if line.startswith("{"))
    return [line for line in map(json.loads, lines) if line["event"] in AUDIT]


def test_users_are_made_granted_checked_and_deleted_on_the_command_line(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("orders-secret\n")
    assert call("users", "create", "orders", "--secret-file", str(secret))[0] == 0
    assert call("users", "create", "orders", "--secret-file", str(secret))[0] == 1, "there is one"
    monkeypatch.setenv("AEROBEE_USER_SECRET", "other-secret")
    assert call("users", "update", "orders", "--secret", "--disable")[0] == 0
    code, out, _ = call("users", "list", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert (rows["orders"]["type"], rows["orders"]["enabled"]) == ("normal", False)
    assert rows["root"]["type"] == "super"
    code, out, _ = call("acl", "check", "orders", "Pub", "Topic:orders-eu", "--json")
    assert (code, json.loads(out)[0]["because"]) == (5, "the user is disabled")
    assert call("users", "update", "orders", "--enable")[0] == 0
    assert call("acl", "check", "orders", "Pub", "Topic:orders-eu")[0] == 5
    granted = ("acl", "grant", "orders", "Topic:orders*", "Pub", "Sub", "--from", "10.0.0.0/8")
    assert call(*granted)[0] == 0
    code, out, _ = call(
        "acl", "check", "orders", "Pub", "Topic:orders-eu", "--from", "10.1.2.3", "--json"
    )
    assert code == 0
    assert json.loads(out)[0]["because"] == "Topic:orders* in the custom policy allows it"
    assert call("acl", "check", "orders", "Pub", "Topic:orders-eu", "--from", "11.1.2.3")[0] == 5
    code, _, err = call("acl", "check", "orders", "Pub", "Topic:orders-eu", "--from", "10.1.2")
    assert (code, "'10.1.2' is no IP address" in err) == (2, True)
    shown = json.loads(call("users", "show", "orders", "--json")[1])
    assert shown["acl"][0]["resource"] == "Topic:orders*"
    assert call("acl", "grant", "orders", "Bogus:x", "Pub")[0] == 1
    assert call("acl", "revoke", "orders")[0] == 2
    assert call("acl", "revoke", "orders", "Topic:orders*")[0] == 0
    assert call("acl", "list", "--user", "orders", "--jsonl")[1] == ""
    assert call("users", "delete", "orders", "--yes")[0] == 0
    assert call("users", "show", "orders")[0] == 1


def test_rights_and_secrets_count_from_now_on_also_on_open_connections(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    admin.create_topic("T", queues=1)
    admin.create_user("u", "u-secret")
    with producer(broker, "u", "u-secret") as sender:
        with pytest.raises(AerobeeError, match="User:u has no permission to access Topic:T"):
            sender.send(Message("T", b"1"))
        admin.grant("u", "Topic:T", ["Pub", "Sub"])
        admin.grant("u", "Group:g", ["Sub"])
        assert sender.send(Message("T", b"2")).queue_offset == 0
        admin.grant("u", "Topic:T", ["Pub"], deny=True)
        with pytest.raises(AerobeeError, match=r"the decision is deny\."):
            sender.send(Message("T", b"3"))


CHANGES: dict[str, Callable[[AdminClient, str], Any]] = {
    "disabled": lambda admin, name: admin.change_user(name, enabled=False),
    "secret": lambda admin, name: admin.change_user(name, secret="another-secret"),
    "revoked": lambda admin, name: admin.revoke(name, "Topic:Held"),
    "denied": lambda admin, name: admin.grant(name, "Topic:Held", ["Sub"], deny=True),
    "deleted": lambda admin, name: admin.delete_user(name),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_held_pull_does_not_outlive_the_rights_of_its_user(
    broker: BrokerProcess, admin: AdminClient, change: str
) -> None:
    """S4: a message that comes after the change goes to nobody who may not have it."""
    admin.create_topic("Held", queues=1)
    admin.create_user(change, "held-secret")
    admin.grant(change, "Topic:Held", ["Sub"])
    admin.grant(change, "Group:g", ["Sub"])
    pull = pull_fields("g", "Held", 0, 0, sysFlag=6) | {"AccessKey": change}
    fields = {name: str(value) for name, value in pull.items()}
    with RawConnection(broker.address) as theirs:
        assert ask(theirs, 105, change, "held-secret", {"topic": "Held"}).code == 0
        theirs.ask(11, fields | {"Signature": signature(b"held-secret", fields, b"")})
        admin.grant(change, "Group:h", ["Sub"])
        CHANGES[change](admin, change)
        with pytest.raises(Closed):
            theirs.hear()


def test_no_answer_and_no_line_has_a_secret_and_every_change_has_its_line(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    """S4, S13."""
    admin.create_user("audited", "audited-secret-1")
    admin.change_user("audited", secret="audited-secret-2")
    with RawConnection(broker.address) as raw:
        answers = [
            ask(raw, code, "root", SECRET, ext)
            for code, ext in ((26, {}), (28, {}), (3004, {"username": "audited"}), (3005, {}))
        ]
        refused = ask(raw, 17, "audited", "audited-secret-2", topic_fields("Mine"))
        assert (refused.code, "Topic:Mine" in str(refused.remark)) == (16, True)
        evil = ask(raw, 3003, "root", SECRET, {"username": "x\n{\x1b[2J"})
        assert evil.code == 29
    secrets = (SECRET, "audited-secret-1", "audited-secret-2")
    for answer in answers:
        assert not any(secret.encode() in answer.body for secret in secrets)
    config = admin.broker_config()
    assert config["initAuthenticationUser"] == "********"
    text = broker.log.read_text()
    assert not any(secret in text for secret in secrets)
    assert "\x1b" not in text
    lines = audit(broker)
    said = {(line["request"], line["user"], line["result"]) for line in lines}
    assert {
        ("AUTH_CREATE_USER", "root", "SUCCESS"),
        ("AUTH_UPDATE_USER", "root", "SUCCESS"),
        ("UPDATE_AND_CREATE_TOPIC", "audited", "NO_PERMISSION"),
        ("AUTH_DELETE_USER", "root", "INVALID_PARAMETER"),
    } <= said
    [created] = [line for line in lines if line["what"] == "username=audited"][:1]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", created["address"])


def test_the_audit_log_says_the_old_and_the_new_values(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    """S13: of topics, groups, users, ACLs, and the order of topics; secrets are never said."""
    seen = len(audit(broker))
    admin.create_topic("Audited", queues=2)
    admin.change_topic("Audited", write_queues=3, perm=4)
    admin.delete_topic("Audited")
    group = {"groupName": "audited", "retryMaxTimes": 3}
    with RawConnection(broker.address) as raw:
        for body in (group, {**group, "retryMaxTimes": 5, "attributes": {"secretKey": "hush"}}):
            sent = json.dumps(body).encode()
            fields = {"AccessKey": "root"}
            fields["Signature"] = signature(SECRET.encode(), fields, sent)
            assert raw.call(200, fields, sent).code == 0
    admin.delete_group("audited")
    for value in ("broker-a:4", "broker-a:8"):
        admin.put_kv("ORDER_TOPIC_CONFIG", "Audited", value)
    admin.delete_kv("ORDER_TOPIC_CONFIG", "Audited")
    admin.create_user("told", "told-secret-1")
    admin.change_user("told", secret="told-secret-2", enabled=False)
    admin.grant("told", "Topic:Audited", ["Pub"])
    admin.grant("told", "Topic:Audited", ["Pub"], deny=True)
    admin.delete_user("told")
    lines = audit(broker)[seen:]
    assert not any("hush" in str(line) or "told-secret" in str(line) for line in lines)
    said = [line["changes"] for line in lines if line["changes"]]
    for text, words in zip(said, SAID, strict=True):
        assert words in text, (words, text)


SAID = (
    "Audited created: attributes {}, order false, perm 6, readQueueNums 2,",
    "Audited: perm 6 -> 4, writeQueueNums 2 -> 3",
    "Audited deleted: attributes {}, order false, perm 4, readQueueNums 2,",
    "audited created: ",
    "audited: attributes {} -> -, attributes.secretKey ***, retryMaxTimes 3 -> 5",
    "audited deleted: ",
    'ORDER_TOPIC_CONFIG: Audited - -> "broker-a:4"',
    'ORDER_TOPIC_CONFIG: Audited "broker-a:4" -> "broker-a:8"',
    'ORDER_TOPIC_CONFIG: Audited "broker-a:8" -> -',
    "told created: password ***, userStatus",
    'told: password ***, userStatus "enable" -> "disable"',
    'told: Custom/Topic:Audited - -> "Allow Pub"',
    'told: Custom/Topic:Audited "Allow Pub" -> "Deny Pub"',
    "told deleted: password ***",
)


def test_what_was_answered_survives_a_kill_and_a_damaged_file_refuses_the_start(
    tmp_path: Path,
) -> None:
    """S3: open to the network with credentials, and without a default password."""
    settings = {"authenticationEnabled": "true", "bindAddress": "0.0.0.0"}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        [said] = re.findall(r"access key (\S+), secret key in (\S+) ", broker.log.read_text())
        kept = Path(said[1])
        assert (kept.stat().st_mode & 0o777, kept.parent) == (0o600, tmp_path / "data" / "config")
        secret = kept.read_text().strip()
        assert secret not in broker.log.read_text(), "a service manager keeps stderr"
        account = Credentials(said[0], secret)
        with AdminClient(broker.namesrv_address, credentials=account) as admin:
            admin.create_user("u", "u-secret")
            admin.grant("u", "Topic:T", ["Pub"])
            admin.change_user("u", enabled=False)
            broker.kill()
        broker.start()
        assert len(re.findall("secret key", broker.log.read_text())) == 1, "told once"
        with AdminClient(broker.namesrv_address, credentials=account) as admin:
            assert {one.name: one.enabled for one in admin.users()} == {"admin": True, "u": False}
            assert [one.resource for one in admin.acl("u")] == ["Topic:T"]
        with pytest.raises(AerobeeError), AdminClient(broker.namesrv_address) as nobody:
            nobody.topics()
        broker.kill()
        (broker.data / "config" / "users.json").write_bytes(b"")
        with pytest.raises(DidNotStart):
            broker.start()
        assert "users.json does not decode" in broker.log.read_text()


def test_a_public_address_without_credentials_is_refused_with_both_ways(tmp_path: Path) -> None:
    """S3."""
    settings = {"bindAddress": "0.0.0.0"}
    broker = BrokerProcess(data=tmp_path / "data", settings=settings)
    with pytest.raises(DidNotStart):
        broker.start()
    said = broker.log.read_text()
    assert "authentication_enabled" in said
    assert "insecure: true" in said


def test_what_an_account_may_not_do_is_exit_code_5(
    broker: BrokerProcess,
    admin: AdminClient,
    call: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the broker's refusal, of a known account and of a wrong secret, to the command's end."""
    admin.create_topic("Refused")
    admin.create_user("guest", "guest-secret-1")
    admin.create_topic("Readable")
    assert call("acl", "grant", "guest", "Topic:Readable", "Sub")[0] == 0
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "guest")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "guest-secret-1")
    for words in (
        ["topic", "create", "Other"],
        ["topic", "delete", "Refused", "--yes"],
        ["produce", "Refused", "x"],
        ["consume", "Refused", "--no-follow"],
        ["users", "list"],
    ):
        code, out, err = call(*words)
        assert (code, out, err.count("\n")) == (REFUSED, "", 1), (words, err)
    for group, options in (("aerobee_cli", []), ("theirs", ["--group", "theirs"])):
        code, out, err = call("consume", "Readable", *options, "--no-follow")
        assert (code, out) == (REFUSED, ""), err
        assert f"no permission to access Group:{group}" in err.splitlines()[-1]
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "a-wrong-secret-1")
    assert call("produce", "Refused", "x")[0] == REFUSED


def test_what_nobody_may_do_is_exit_code_1(
    admin: AdminClient, call: Callable[..., tuple[int, str, str]]
) -> None:
    """The broker answers NO_PERMISSION to its super user as well."""
    admin.create_topic("ReadOnly", perm=4)
    admin.create_topic("WriteOnly", perm=2)
    admin.create_topic("Open")
    assert call("produce", "Open", "x")[0] == 0
    assert call("group", "create", "closed", "--disabled")[0] == 0
    for words in (
        ["produce", "ReadOnly", "x"],
        ["consume", "WriteOnly", "--no-follow"],
        ["consume", "Open", "--group", "closed", "--no-follow"],
        ["broker", "config", "set", "brokerName=other"],
        ["group", "delete", "CID_RMQ_SYS_TRANS", "--yes"],
        ["users", "update", "root", "--disable"],
    ):
        code, out, err = call(*words)
        assert (code, out, bool(err)) == (FAILED, "", True), (words, code, out, err)
