"""The master is switched by clicking, in a pair and in a group with etcd; rights and audit hold."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aerobee.blocking import AdminClient, Message, Producer
from aerobee.errors import AerobeeError, SendFailedError
from tests.broker.console.conftest import ROOT, SECRET, WITH_USERS
from tests.console_browser.conftest import opened
from tests.console_browser.test_tasks import button_of, change, link
from tests.kit import etcd
from tests.kit.broker_process import BrokerProcess
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST, free_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from aerobee.admin import ReplicationStatus

    Two = tuple[BrokerProcess, BrokerProcess, str]
    Kind = Callable[[Path], AbstractContextManager[Two]]

pytestmark = pytest.mark.service

WITHIN_S = 90.0
LEASE_S = 5
GROUP = "switched"
COMMON: dict[str, object] = WITH_USERS | {
    "brokerName": GROUP,
    "brokerIP1": HOST,
    "haPeers": HOST,
    "embeddedNamesrv": "false",
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": SECRET}),
}


@contextmanager
def running(path: Path, settings: Mapping[int, Mapping[str, object]]) -> Iterator[Two]:
    """Two brokers of one name with a console each: the master, its slave, and the name server."""
    with ExitStack() as stack:
        names = stack.enter_context(NamesrvProcess(data=path / "names"))
        brokers = [
            stack.enter_context(
                BrokerProcess(
                    data=path / f"m{number}",
                    namesrv=names.address,
                    settings={**COMMON, "consolePort": free_port(), **more},
                )
            )
            for number, more in settings.items()
        ]
        admin = stack.enter_context(AdminClient(names.address, credentials=ROOT))

        def ordered() -> tuple[BrokerProcess, BrokerProcess] | None:
            one, other = brokers
            if is_master(admin, one) and follows(admin, other):
                return one, other
            return (other, one) if is_master(admin, other) and follows(admin, one) else None

        both = eventually(ordered, within_s=WITHIN_S, what="a master and its slave")
        assert both is not None
        yield *both, names.address


def status_at(admin: AdminClient, broker: BrokerProcess) -> ReplicationStatus | None:
    try:
        return admin.replication_status(broker.address)
    except AerobeeError:
        return None


def is_master(admin: AdminClient, broker: BrokerProcess) -> bool:
    status = status_at(admin, broker)
    return status is not None and status.is_master


def follows(admin: AdminClient, broker: BrokerProcess) -> bool:
    status = status_at(admin, broker)
    return status is not None and not status.is_master and status.state == "following"


def sent(producer: Producer) -> bool:
    """Whether a message is acknowledged: producers learn of another master in half a minute."""
    try:
        producer.send(Message("Kept", b"after"))
    except SendFailedError:
        return False
    return True


@contextmanager
def pair(path: Path) -> Iterator[Two]:
    """A master and its slave, whose roles a person exchanges."""
    slave = {"brokerRole": "SLAVE", "brokerId": 1}
    with running(path, {0: {"brokerRole": "ASYNC_MASTER"}, 1: slave}) as two:
        yield two


@contextmanager
def etcd_group(path: Path) -> Iterator[Two]:
    """Two members of a group whose master etcd names."""
    with etcd.EtcdNode(data=path / "etcd") as node:
        common: dict[str, Any] = {
            "etcdEndpoints": node.url,
            "failoverMembers": "1;2",
            "failoverLease": LEASE_S,
        }
        with running(path, {number: common | {"brokerId": number} for number in (1, 2)}) as two:
            yield two


def until_row(page: Page, address: str, *texts: str) -> Locator:
    """The row of a broker on the page of the replication, once it says this."""
    row = page.locator("[aria-labelledby=members] tbody tr").filter(has_text=address)

    def there() -> bool:
        page.goto("/replication")
        return row.count() == 1 and all(row.get_by_text(text).count() for text in texts)

    eventually(there, within_s=WITHIN_S, what=f"{address} is {texts}")
    return row


@pytest.mark.parametrize("kind", [pair, etcd_group], ids=["pair", "etcd"])
def test_the_master_is_switched(browser: Browser, tmp_path: Path, kind: Kind) -> None:
    with (
        kind(tmp_path) as (master, slave, namesrv),
        AdminClient(namesrv, credentials=ROOT) as admin,
        Producer(namesrv, group="web", credentials=ROOT) as producer,
    ):
        admin.create_topic("Kept", queues=1)
        for _ in range(5):
            producer.send(Message("Kept", b"before"))
        admin.create_user("onlooker", "onlookers-secret")
        admin.grant("onlooker", "Cluster:*", ["Get", "List"])
        with opened(browser, master, name="onlooker", secret="onlookers-secret") as page:
            # Who may not is told which right is missing, and nothing changes.
            page.goto(f"/switch?address={slave.address}")
            expect(page.get_by_role("alert")).to_contain_text("access Cluster:")
            expect(button_of(page, "Exchange the roles")).to_have_count(0)
        with opened(browser, master) as page:
            row = until_row(page, slave.address, "slave", "in order")
            row.get_by_role("link", name="Make it the master …", exact=True).click()
            asked = page.locator(".notice").first
            expect(asked).to_contain_text(f"{slave.address} becomes the master of {GROUP}")
            expect(asked).to_contain_text(f"{master.address} becomes its slave")
            expect(asked).to_contain_text("No message is lost")
            assert is_master(admin, master), "a question changes nothing"
            change(page, "Exchange the roles")
            done = page.locator(".notice").first
            expect(done).to_contain_text(f"{slave.address} is the master now")
            assert is_master(admin, slave)
            link(page, "Go on")
            until_row(page, slave.address, "master", "in order")
            until_row(page, master.address, "slave", "in order")
            link(page, "Who changed what")
            line = page.locator("tbody tr").filter(has_text="AEROBEE_SWITCH").first
            for text in ("root", f"to={slave.address}", f"{GROUP}: "):
                expect(line).to_contain_text(text)
            refused = page.locator("tbody tr").filter(has_text="onlooker").first
            expect(refused).to_contain_text("NO_PERMISSION")
        eventually(lambda: sent(producer), within_s=WITHIN_S, what="the new master takes sends")
        kept = lambda: admin.describe_topic("Kept").messages == 6  # noqa: E731 - one question
        eventually(kept, within_s=WITHIN_S, what="all six messages")
