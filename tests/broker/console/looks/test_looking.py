"""What the lists of the console say of a running broker."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, Message, Producer
from aerobee.broker.console.looks import looking
from aerobee.store.format.system_names import DLQ_PREFIX
from tests.broker.peers import HandClock
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.broker_process import BrokerProcess
    from tests.kit.console_client import ConsoleClient

pytestmark = pytest.mark.service

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def admin(open_broker: BrokerProcess) -> Iterator[AdminClient]:
    with AdminClient(open_broker.namesrv_address) as admin:
        yield admin


@contextmanager
def sending(producer: Producer, topic: str) -> Iterator[None]:
    """A producer that sends as fast as it can."""
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            producer.send(Message(topic, b"x"))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_the_client_that_sends_most_is_found(
    open_broker: BrokerProcess, anybody: ConsoleClient, admin: AdminClient
) -> None:
    admin.create_topic("Noise", queues=1)
    where = open_broker.namesrv_address
    with (
        Producer(where, group="noisy") as noisy,
        Producer(where, group="quiet") as quiet,
    ):
        quiet.send(Message("Noise", b"x"))
        with sending(noisy, "Noise"):

            def rates() -> dict[str, Any] | None:
                rows = anybody.get("/clients?sort=-requests_per_s").value
                rates = {row["group"]: row["requests_per_s"] for row in rows}
                return rates if rates.get("noisy") and rates.get("quiet") is not None else None

            found = eventually(rates, within_s=WITHIN_S, what="rates of both")
    assert found is not None
    assert found["noisy"] > found["quiet"]
    assert [*found].index("noisy") < [*found].index("quiet")


def test_the_newest_dead_letter_has_its_time(
    open_broker: BrokerProcess, anybody: ConsoleClient, admin: AdminClient
) -> None:
    letters = f"{DLQ_PREFIX}givers"
    admin.create_group(GroupConfig(name="givers"))
    admin.create_topic(letters, queues=2)
    with Producer(open_broker.namesrv_address, group="p") as producer:
        for number in range(4):
            producer.send(Message(letters, b"%d" % number))

    def row() -> dict[str, Any] | None:
        rows = anybody.get("/dlq?filter=givers").value
        return rows[0] if rows and rows[0]["letters"] == 4 else None

    found = eventually(row, within_s=WITHIN_S, what="the row of four letters")
    times = [queue.last_stored_at for queue in admin.describe_topic(letters).queues]
    newest = max(time for time in times if time is not None)
    assert found == {
        "group": "givers",
        "letters": 4,
        "last": newest.isoformat().replace("+00:00", "Z"),
    }


def test_groups_that_brokers_and_their_tools_bring_are_not_the_users(
    open_broker: BrokerProcess, anybody: ConsoleClient, admin: AdminClient
) -> None:
    admin.create_group(GroupConfig(name="mine"))

    def rows() -> dict[str, bool] | None:
        found = {row["group"]: row["system"] for row in anybody.get("/groups?limit=500").value}
        return found if "mine" in found else None

    groups = eventually(rows, within_s=WITHIN_S, what="the new group")
    assert groups is not None
    assert not groups["mine"]
    brought = {"CID_ONSAPI_OWNER", "CID_ONS-HTTP-PROXY", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP"}
    assert {name for name in brought if groups[name]} == brought


@pytest.mark.trio
async def test_while_a_snapshot_is_made_others_get_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HandClock()
    go, made = trio.Event(), 0
    go.set()

    class SlowPass:
        requests = looking.Requests(0.0, {})

        def __init__(self, *given: Any) -> None:
            pass

        async def run(self) -> Any:
            nonlocal made
            made += 1
            number = made
            await go.wait()
            return SimpleNamespace(number=number)

    async def no_backlog() -> None:
        return None

    monkeypatch.setattr(looking, "Pass", SlowPass)
    core = SimpleNamespace(clock=clock)
    sources = SimpleNamespace(read_backlog=no_backlog)
    tables: Any = SimpleNamespace(core=core, sources=sources)
    shown: Any = looking.Looking(tables)
    assert (await shown.snapshot()).number == 1
    clock.seconds += looking.TICK_S + 1
    go = trio.Event()
    got: list[int] = []

    async def look() -> None:
        got.append((await shown.snapshot()).number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        assert (await shown.snapshot()).number == 1
        clock.seconds += looking.OLD_S
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        assert not got, "too old: who asks waits"
        go.set()
    assert got == [2, 2]
