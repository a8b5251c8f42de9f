"""Access control with the clients of others: producers and push consumers of Java and Go.

Each account with rights is served; each other one hears why: its send fails with the remark of the
broker, or, where not even the route is told, its log has it. Two brokers, with `plain_acl.yml` and
with users, have the same accounts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import aerobee.blocking
from aerobee import Credentials
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.golang import GoMember
from tests.kit.java import VERSIONS
from tests.kit.java_driver import JavaError
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.interop.conftest import GetClient
    from tests.kit.java_driver import JavaClient

pytestmark = pytest.mark.interop

SECRET: Final = "a-long-secret"
ADMIN: Final = "the-admin"
ACL: Final = f"""\
accounts:
- {{accessKey: {ADMIN}, secretKey: {SECRET}, admin: true}}
- {{accessKey: one-shop, secretKey: {SECRET}, topicPerms: [TOPICS], groupPerms: [GROUPS]}}
- {{accessKey: two-shop, secretKey: {SECRET}}}
"""
CLIENTS: Final = ("java5", "java4", "go")
VERSION_OF: Final = dict(zip(CLIENTS, VERSIONS, strict=False))
WITHIN_S: Final = 30.0


class Guarded(NamedTuple):
    """A broker with accounts, and what it says to those without rights."""

    names: str
    no_topic: str
    no_group: str
    unsigned: str
    not_signed: Mapping[tuple[str, str], str]
    """Access key and secret → the remark."""


@pytest.fixture(scope="module", params=["plain_acl.yml", "users"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    root = tmp_path_factory.mktemp("guarded")
    start = with_users if request.param == "users" else with_acl_file
    with start(root) as broker:
        names = broker.namesrv_address
        account = Credentials(ADMIN, SECRET)
        with aerobee.blocking.AdminClient(names, credentials=account) as admin:
            for name in CLIENTS:
                admin.create_topic(name, queues=4)
            if request.param == "users":
                fill(admin)
                user = "User:two-shop has no permission to access"
                wrong = "check signature failed"
                remarks = [f"{user} Topic:", f"{user} ", "username cannot be null", wrong, wrong]
                failing = [("one-shop", "another"), ("nobody-here", SECRET), ("no-shop", SECRET)]
            else:
                lacks = "No default permission for"
                wrong = "Check signature failed for accessKey="
                remarks = [f"{lacks} ", f"{lacks} group:", "No accessKey is configured"]
                remarks += [f"{wrong}one-shop", f"{wrong}nobody-here"]
                failing = [("one-shop", "another-secret"), ("nobody-here", SECRET)]
        no_topic, no_group, unsigned, *texts = remarks
        texts += texts[-1:]
        not_signed = dict(zip(failing, texts, strict=False))
        yield Guarded(names, no_topic, no_group, unsigned, not_signed)


def with_acl_file(root: Path) -> BrokerProcess:
    topics = ", ".join(f"{name}=PUB|SUB" for name in CLIENTS)
    groups = ", ".join(f"{name}-group=SUB" for name in CLIENTS)
    path = root / "plain_acl.yml"
    path.write_text(ACL.replace("TOPICS", topics).replace("GROUPS", groups))
    path.chmod(0o600)
    return BrokerProcess(data=root / "data", settings={"aclEnable": True, "aclConfigDir": root})


def with_users(root: Path) -> BrokerProcess:
    return BrokerProcess(data=root / "data", settings=with_accounts(ADMIN, SECRET))


def fill(admin: aerobee.blocking.AdminClient) -> None:
    for user in ("one-shop", "two-shop", "no-shop"):
        admin.create_user(user, SECRET)
    admin.change_user("no-shop", enabled=False)
    for name in CLIENTS:
        admin.grant("one-shop", f"Topic:{name}", ["Pub", "Sub"])
        admin.grant("one-shop", f"Group:{name}-group", ["Sub"])


@pytest.mark.parametrize("kind", ["java5", "java4"])
def test_java_clients_have_the_rights_of_their_account(
    broker: Guarded, kind: str, java_client: GetClient
) -> None:
    client, names = java_client(VERSION_OF[kind], "JSON"), broker.names
    try:
        account = {"access": "one-shop", "secret": SECRET}
        client.producer("signs", names, **account)
        assert client.send("signs", kind, ["mine"])[0].status == "SEND_OK"
        client.consumer("reads", names, kind, group=f"{kind}-group", **account)
        assert [one.body for one in client.received("reads", 1)] == ["mine"]
        bare = {"access": "two-shop", "secret": SECRET}
        client.producer("bare", names, **bare)
        refused_send(client, "bare", kind, broker.no_topic + kind)
        seen = told(client, broker.no_group)
        client.consumer("spies", names, kind, group="spies", **bare)
        logged(client, broker.no_group, seen)
        for number, ((name, secret), remark) in enumerate(broker.not_signed.items()):
            client.producer(f"p{number}", names, access=name, secret=secret)
            refused_send(client, f"p{number}", kind, remark)
        client.producer("unsigned", names)
        refused_send(client, "unsigned", kind, broker.unsigned)
        assert not client.received("spies", 1, within_s=0)
    finally:
        client.call("clear")


def refused_send(client: JavaClient, producer: str, topic: str, remark: str) -> None:
    """A send fails with a remark; one that does not even learn the route has it in its log."""
    seen = told(client, remark)
    with pytest.raises(JavaError) as error:
        client.send(producer, topic, ["not mine"])
    if remark not in error.value.message:
        assert "No route info of this topic" in error.value.message
        logged(client, remark, seen)


def logged(client: JavaClient, remark: str, seen: int) -> None:
    """The client logs a remark once more."""
    what = f"{remark!r} in the log of the client"
    eventually(lambda: told(client, remark) > seen, within_s=WITHIN_S, what=what)


def told(client: JavaClient, remark: str) -> int:
    """How often the remark is in the logs of the client."""
    logs = client.logs.rglob("*.log")
    return sum(path.read_text(errors="replace").count(remark) for path in logs)


def test_go_clients_have_the_rights_of_their_account(broker: Guarded, tmp_path: Path) -> None:
    def sent(number: int, *account: str) -> tuple[list[str], str]:
        """What its messages became, and its log."""
        member = go("PRODUCER", f"p{number}", account)
        member.stop()
        return member.sent, (tmp_path / f"p{number}.log").read_text()

    def go(
        strategy: str, instance: str, account: tuple[str, ...], group: str = "go-group"
    ) -> GoMember:
        name, secret = account
        return GoMember(
            tmp_path,
            broker.names,
            group,
            "go",
            strategy=strategy,
            instance=instance,
            given="mine",
            account=(name, secret),
        )

    good, _ = sent(0, "one-shop", SECRET)
    assert good == ["0"]
    reader = go("AVG", "reads", ("one-shop", SECRET))
    try:
        eventually(lambda: reader.received == ["mine"], within_s=WITHIN_S, what="the message")
    finally:
        reader.stop()
    for number, (account, remark) in enumerate(
        {("two-shop", SECRET): broker.no_topic + "go", **broker.not_signed}.items(), 1
    ):
        [said], log = sent(number, *account)
        assert remark in said + log, (account, said, log)
