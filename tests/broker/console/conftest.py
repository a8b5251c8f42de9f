"""Brokers with a console: one without users, one with some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.blocking import AdminClient, Credentials
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.console_client import ConsoleClient
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "root-secret-of-this-test"
ROOT = Credentials("root", SECRET)
WITH_USERS: dict[str, object] = {
    **with_accounts("root", SECRET),
    "consoleBodyReaders": "root, reader",
    "consoleNames": "console.test",
}


@pytest.fixture(scope="module")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker without users."""
    data = tmp_path_factory.mktemp("open") / "data"
    with BrokerProcess(data=data, settings={"consolePort": free_port()}) as broker:
        yield broker


@pytest.fixture
def anybody(open_broker: BrokerProcess) -> ConsoleClient:
    """A client of its console."""
    return client_of(open_broker)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with users: root may everything."""
    data = tmp_path_factory.mktemp("users") / "data"
    settings = WITH_USERS | {"consolePort": free_port()}
    with BrokerProcess(data=data, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[AdminClient]:
    """Root, over remoting."""
    with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
        yield admin


@pytest.fixture
def root(broker: BrokerProcess) -> ConsoleClient:
    """Root at the API."""
    return client_of(broker, ("root", SECRET))


def client_of(broker: BrokerProcess, account: tuple[str, str] | None = None) -> ConsoleClient:
    """A client of a broker's console."""
    port = broker.settings["consolePort"]
    assert isinstance(port, int)
    return ConsoleClient(port, account)
