"""Access control with the clients of others: Java's tools as producer, consumer and administrator.

`mqadmin` reads `conf/tools.yml` and signs with RocketMQ's own hook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aerobee.blocking
from aerobee import ConsumeFrom, Credentials, Message
from aerobee.errors import AerobeeError
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

SECRET = "a-long-secret"
READ_WITHIN_S = 120
ACL = f"""\
accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- accessKey: one-shop
  secretKey: {SECRET}
  topicPerms: [orders=PUB|SUB]
  groupPerms: [readers=SUB, TOOLS_CONSUMER=SUB]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    root = tmp_path_factory.mktemp("guarded")
    (root / "plain_acl.yml").write_text(ACL)
    (root / "plain_acl.yml").chmod(0o600)
    settings = {"aclEnable": True, "aclConfigDir": root, "brokerName": "b1"}
    with BrokerProcess(data=root / "data", settings=settings) as broker:
        admin = Credentials("the-admin", SECRET)
        with aerobee.blocking.AdminClient(broker.namesrv_address, credentials=admin) as client:
            client.create_topic("orders", broker="b1")
        yield broker


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("homes")
    for name, keys in {
        "admin": ("the-admin", SECRET),
        "shop": ("one-shop", SECRET),
        "wrong": ("one-shop", "another-secret"),
    }.items():
        (root / name / "conf").mkdir(parents=True)
        lines = f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n"
        (root / name / "conf" / "tools.yml").write_text(lines)
        (root / name / "conf" / "logback_tools.xml").write_text("<configuration/>")
    return root


@pytest.mark.parametrize("version", VERSIONS)
def test_tools_of_java_have_the_rights_of_their_account(
    broker: BrokerProcess, homes: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = f"made{version[0]}"

    def said(home: str, *commands: str) -> list[str]:
        monkeypatch.setenv("ROCKETMQ_HOME", str(homes / home))
        client = JavaClient(toolkit(version), homes / home, headers="ROCKETMQ")
        try:
            return [client.mqadmin(broker.namesrv_address, *one.split()) for one in commands]
        finally:
            client.child.kill()

    clusters, creation = said("admin", "clusterList", f"updateTopic -b {broker.address} -t {made}")
    assert "V5_3_3" in clusters
    assert "success" in creation
    # A send has three seconds, which the first request of a JVM may take on a busy machine.
    _, sent = said("shop", "topicRoute -t orders", "sendMessage -t orders -p from-java")
    # A client that is still closing its channels may close one of the next client of its process.
    reading = "topicRoute -t orders", "consumeMessage -t orders"
    eventually(
        lambda: "topic='orders'" in said("shop", *reading)[1],
        within_s=READ_WITHIN_S,
        what="the tool reads the message",
    )
    (denied,) = said("shop", f"updateTopic -b {broker.address} -t mine")
    assert "SEND_OK" in sent
    assert "Need admin permission for request code=17" in denied
    (wrong,) = said("wrong", "clusterList")
    assert "Check signature failed for accessKey=one-shop" in wrong


@pytest.mark.parametrize("keys", [None, ("one-shop", "wrong"), ("nobody", SECRET)])
def test_the_sdk_without_rights_hears_why(
    broker: BrokerProcess, keys: tuple[str, str] | None
) -> None:
    account = None if keys is None else Credentials(*keys)
    with pytest.raises(AerobeeError, match="accessKey"):
        aerobee.blocking.Producer(broker.namesrv_address, credentials=account).start()


def test_the_sdk_with_rights_is_served(broker: BrokerProcess) -> None:
    account = Credentials("one-shop", SECRET)
    with aerobee.blocking.Client(broker.namesrv_address, credentials=account) as client:
        with aerobee.blocking.Producer(client=client) as producer:
            assert producer.send(Message("orders", b"mine")).ok
        with aerobee.blocking.PullConsumer(
            "readers", client=client, start_from=ConsumeFrom.FIRST
        ) as consumer:
            consumer.subscribe("orders")
            assert consumer.poll(timeout=30.0)
