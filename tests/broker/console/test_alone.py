"""`aerobee console`: the console of a cluster, in a process without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.console.alone import authority_of
from aerobee.cli.connection import Connection
from tests.broker.console.conftest import SECRET
from tests.kit.console_client import ConsoleClient
from tests.kit.console_process import alone, known
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess

WITHIN_S = 60.0


@pytest.mark.service
def test_without_an_account_it_reads_a_cluster_and_changes_nothing(
    open_broker: BrokerProcess, tmp_path: Path
) -> None:
    with alone(open_broker.namesrv_address, tmp_path) as console:
        (row,) = known(console)
        assert (row["address"], row["state"], row["own"]) == (open_broker.address, "up", False)
        assert console.get("/overview").value["version"] is None
        asked = console.send("POST", "/topics", name="Never", confirm=True)
        assert asked.status == 403
        assert "AEROBEE_ACCESS_KEY" in asked.document["text"]
        for path in ("/settings", "/audit", "/store"):
            assert console.get(path).status == 404
        page = console.request("GET", "/").body.decode()
        assert "1 of 1 brokers" not in page
        assert 'href="/audit"' not in page
        for path in ("/groups", "/topics", "/clients", "/dead", "/replication", "/messages"):
            assert console.request("GET", path).status == 200, path


@pytest.mark.service
def test_with_an_account_who_knows_its_secret_may_what_brokers_allow(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    account = {"AEROBEE_ACCESS_KEY": "root", "AEROBEE_SECRET_KEY": SECRET}
    with alone(broker.namesrv_address, tmp_path, **account) as console:
        assert [row["state"] for row in known(console)] == ["up"]
        stranger = ConsoleClient(console.port, ("root", "guessed"))
        assert stranger.get("/brokers").status == 401
        assert ConsoleClient(console.port).get("/brokers").status == 401
        made = console.send("POST", "/topics", name="FromAfar", queues=1, confirm=True)
        assert made.status == 200, made.body

        def there() -> bool:
            return bool(console.get("/topics?filter=FromAfar").value)

        eventually(there, within_s=WITHIN_S, what="the topic is in the list")


@pytest.mark.service
def test_without_a_name_server_it_says_so(tmp_path: Path) -> None:
    with alone(f"127.0.0.1:{free_port()}", tmp_path) as console:

        def told() -> str:
            (found,) = console.get("/findings").value
            return str(found["text"]) if "name server" in found["text"] else ""

        eventually(told, within_s=WITHIN_S, what="the name server is named")
        assert console.request("GET", "/").status == 200
        assert console.get("/overview").value["lag"] is None


def test_one_account_logs_in_and_no_other() -> None:
    assert authority_of(Connection("127.0.0.1:1"))() is None
    profile = {"access_key": "root", "secret_key": "s"}
    authority = authority_of(Connection("127.0.0.1:1", profile))()
    assert authority is not None
    account = authority.account("root")
    assert account is not None
    assert account.secret == b"s"
    assert authority.account("other") is None
