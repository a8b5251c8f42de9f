"""One console shows all brokers of a name server, and says which of them tell nothing."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, ConsumeFrom, Message, Producer, PullConsumer
from aerobee.broker.console.looks import cluster
from aerobee.broker.console.looks.cluster import (
    ASKING,
    DROPPED_MS,
    FIRST_S,
    LOOK_FAILED,
    LOOK_S,
    OLD_S,
    ClusterLooks,
    dropped_row,
    dropped_since,
)
from aerobee.broker.console.looks.merging import missing_of
from aerobee.broker.console.looks.snapshot import ClusterLook
from aerobee.broker.console.looks.viewers import Failure
from aerobee.client.blocking.client import Client
from aerobee.client.steps.admin.broker_tables import look_at_tables
from aerobee.store.format.system_names import DLQ_PREFIX
from tests.broker.console.conftest import ROOT, SECRET, WITH_USERS, client_of
from tests.broker.peers import HandClock
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_port
from tests.kit.supervised import Supervised
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.client.steps.admin.broker_tables import BrokerTables
    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from tests.kit.console_client import ConsoleClient

    Look = Callable[[ClusterLook], ClusterLook]

WITHIN_S = 60.0
USERS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": WITH_USERS["initAuthenticationUser"],
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": SECRET}),
}


def member(path: Path, name: str, first: BrokerProcess, **settings: Any) -> BrokerProcess:
    """Another broker at the name server of the first."""
    own = {"brokerName": name, "embeddedNamesrv": "false", **settings}
    return BrokerProcess(data=path / name, namesrv=first.namesrv_address, settings=own)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("cluster") / "data"
    settings = {"consolePort": free_port(), "brokerName": "first"}
    with BrokerProcess(data=data, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def second(
    tmp_path_factory: pytest.TempPathFactory, first: BrokerProcess
) -> Iterator[BrokerProcess]:
    with member(tmp_path_factory.mktemp("second"), "second", first) as broker:
        with AdminClient(first.namesrv_address) as admin:
            there = lambda: len(admin.cluster_info().brokers) == 2  # noqa: E731 - one question
            eventually(there, within_s=WITHIN_S, what="both brokers are registered")
        yield broker


def row_of(console: ConsoleClient, path: str, column: str, name: str) -> dict[str, Any]:
    rows = console.get(f"{path}?filter={name}").value
    return next((row for row in rows if row[column] == name), {})


@pytest.mark.service
def test_what_lies_on_several_brokers_is_shown_as_one(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    console, where = client_of(first), first.namesrv_address
    letters = f"{DLQ_PREFIX}readers"
    with (
        AdminClient(where) as admin,
        Producer(where, group="senders") as producer,
        PullConsumer("readers", where, start_from=ConsumeFrom.FIRST) as readers,
    ):
        admin.create_topic("Spread", queues=2)
        admin.create_group(GroupConfig(name="readers"))
        readers.subscribe("Spread")
        for _ in range(12):
            producer.send(Message("Spread", b"x"))
        admin.create_topic(letters, queues=1)
        admin.reset_offsets("readers", "Spread", 0)

        def whole() -> dict[str, Any] | None:
            row = row_of(console, "/topics", "topic", "Spread")
            group = row_of(console, "/groups", "group", "readers")
            seen = row.get("messages") == 12 and group.get("members") and group["lag"] == 12
            return group if seen and group["lag_s"] is not None else None

        group = eventually(whole, within_s=WITHIN_S, what="both brokers' queues are counted")
        topic = row_of(console, "/topics", "topic", "Spread")
        clients = console.get("/clients?filter=readers").value
    assert group is not None
    assert (group["members"], group["topics"]) == (1, ["Spread"])
    assert group["lag_at_least"] == 12
    assert (topic["write_queues"], topic["groups"]) == (4, ["readers"])
    assert {row["broker"] for row in clients} == {"first", "second"}
    rows = {row["broker"]: row for row in console.get("/brokers").value}
    assert {name: row["state"] for name, row in rows.items()} == {"first": "up", "second": "up"}
    assert (rows["first"]["own"], rows["second"]["own"]) == (True, False)
    overview = console.get("/overview").value
    assert (overview["brokers"], overview["brokers_up"]) == (2, 2)
    html = console.request("GET", "/").body.decode()
    assert "2 of 2 brokers answer" in html


@pytest.mark.service
def test_a_setting_is_changed_on_the_broker_of_the_console(
    broker: BrokerProcess, root: ConsoleClient, tmp_path: Path
) -> None:
    with member(tmp_path, "other", broker, **USERS):
        ours = lambda: len(root.get("/brokers").value) == 2  # noqa: E731 - one question
        eventually(ours, within_s=WITHIN_S, what="the other broker is known")
        name = root.get("/overview").value["broker"]
        path = "/brokers/settings"
        asked = root.send("PATCH", path, values=["deleteWhen=06"], broker=name, confirm=True)
        assert asked.status == 200, asked.body
        with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
            assert admin.broker_config("other")["deleteWhen"] == "04"
            assert admin.broker_config(name)["deleteWhen"] == "06"


@pytest.mark.service
def test_a_broker_that_does_not_let_the_account_in_is_shown_as_that(
    broker: BrokerProcess, root: ConsoleClient, tmp_path: Path
) -> None:
    # The same name of a user, with another secret there.
    other = json.dumps({"username": "root", "password": "another-secret"})
    with member(tmp_path, "guarded", broker, **USERS | {"initAuthenticationUser": other}):

        def forbidden() -> dict[str, Any]:
            row = row_of(root, "/brokers", "broker", "guarded")
            return row if row.get("state") == "forbidden" else {}

        row = eventually(forbidden, within_s=WITHIN_S, what="the guarded broker is forbidden")
        assert row is not None
        assert row["in_per_s"] is None
        assert row["why"]
        kinds = [found["kind"] for found in root.get("/findings").value]
        assert kinds[0] == "broker_forbidden"


@pytest.mark.service
def test_a_user_is_told_which_right_another_broker_wants(
    broker: BrokerProcess, root: ConsoleClient, tmp_path: Path
) -> None:
    with member(tmp_path, "strict", broker, **USERS, authorizationEnabled="true"):
        up = lambda: row_of(root, "/brokers", "broker", "strict").get("state") == "up"  # noqa: E731 - one question
        eventually(up, within_s=WITHIN_S, what="the other broker is known")
        with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
            admin.create_topic("Shared", queues=1)
            admin.create_user("ann", "anns-secret")
            admin.grant("ann", "Topic:Shared", ["Get", "List"])
        ann = client_of(broker, ("ann", "anns-secret"))

        def lacks() -> str:
            return str(row_of(ann, "/brokers", "broker", "strict").get("lacks") or "")

        assert (
            eventually(lacks, within_s=WITHIN_S, what="a right")
            == "Get or List on Cluster:DefaultCluster"
        )
        seen = lambda: row_of(ann, "/topics", "topic", "Shared")  # noqa: E731 - one question
        eventually(seen, within_s=WITHIN_S, what="a snapshot has the topic")
        browser = client_of(broker)
        login = browser.form("/login", "name=ann&secret=anns-secret")
        browser.headers["cookie"] = login.headers["set-cookie"].partition(";")[0]
        page = browser.request("GET", "/topics").body.decode()
        assert "The account needs the right Get or List on Cluster:DefaultCluster" in page
        assert "Shared" in page
        refused = ann.get("/cluster")
        assert refused.status == 403
        # With that right the other topics and groups there, which stay hidden, hide no others.
        with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
            admin.grant("ann", "Cluster:DefaultCluster", ["Get"])

        def both() -> bool:
            state = row_of(ann, "/brokers", "broker", "strict").get("state")
            return (state, row_of(ann, "/topics", "topic", "Shared")["write_queues"]) == ("up", 2)

        eventually(both, within_s=WITHIN_S, what="both brokers tell of the topic")
        assert refused.document["text"].endswith("needs Get or List on Cluster:DefaultCluster.")


@pytest.mark.service
def test_the_brokers_of_one_process_are_shown_as_one(tmp_path: Path) -> None:
    settings = {"consolePort": free_port()}
    with Supervised(data=tmp_path / "data", settings=settings) as brokers:
        brokers.await_ready()
        console = client_of(brokers)

        def up() -> list[bool]:
            rows = console.get("/brokers").value
            return [row["own"] for row in rows if row["state"] == "up"]

        eventually(lambda: len(up()) == 2, within_s=WITHIN_S, what="both brokers are up")
        assert sorted(up()) == [False, True]
        where = brokers.namesrv_address
        with AdminClient(where) as admin, Producer(where, group="senders") as producer:
            admin.create_topic("Both", queues=2)
            for _ in range(8):
                producer.send(Message("Both", b"x"))

        def whole() -> dict[str, Any] | None:
            row = row_of(console, "/topics", "topic", "Both")
            return row if row.get("messages") == 8 else None

        topic = eventually(whole, within_s=WITHIN_S, what="the messages of both are counted")
        assert topic is not None
        assert topic["write_queues"] == 4
        overview = console.get("/overview").value
        assert (overview["brokers"], overview["brokers_up"]) == (2, 2)
        assert "2 of 2 brokers answer" in console.request("GET", "/").body.decode()
        assert console.request("GET", "/replication").body.decode().count("in order") == 2


@pytest.mark.service
def test_nonsense_of_one_broker_hides_no_other(
    first: BrokerProcess, second: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nonsense_of_second(
        routes: Routes, target: Broker, before: BrokerTables | None, now_ms: int
    ) -> Steps[BrokerTables]:
        if target.name == "second":
            raise OverflowError("integer division result too large for a float")
        return look_at_tables(routes, target, before, now_ms)

    monkeypatch.setattr(cluster, "look_at_tables", nonsense_of_second)
    with Client(first.namesrv_address) as client:
        look = cluster.look_at_cluster(client, ClusterLook(), lambda _: False, lambda: 1)
    states = {row["broker"]: (row["state"], row["why"]) for row in look.rows}
    assert states == {"first": ("up", ""), "second": ("failing", LOOK_FAILED)}
    assert look.tables.keys() == {"first"}


@pytest.mark.service
def test_a_dead_broker_is_shown_as_that_and_never_as_zero(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    console, where = client_of(first), first.namesrv_address
    with AdminClient(where) as admin:
        admin.create_topic("Halved", queues=1)
        admin.create_group(GroupConfig(name="idlers"))
        admin.reset_offsets("idlers", "Halved", 0)
    second.kill()

    def dead() -> bool:
        return row_of(console, "/brokers", "broker", "second").get("state") == "dead"

    eventually(dead, within_s=WITHIN_S, what="the killed broker is dead")
    found = console.get("/findings").value[0]
    assert (found["severity"], found["kind"]) == ("error", "broker_unreachable")
    assert "second" in found["text"]
    group = row_of(console, "/groups", "group", "idlers")
    assert (group["lag"], group["lag_at_least"]) == (None, 0)
    topic = row_of(console, "/topics", "topic", "Halved")
    assert (topic["messages"], topic["messages_at_least"]) == (None, 0)
    overview = console.get("/overview").value
    assert (overview["brokers"], overview["brokers_up"]) == (2, 1)
    assert overview["lag"] is None
    page = console.request("GET", "/groups").body.decode()
    assert "do not tell it: second" in page
    assert "not known" in page


# ── When looks are made ──


@pytest.mark.trio
async def test_a_page_waits_for_the_first_look_alone() -> None:
    clock, go, made = HandClock(), threading.Event(), 0
    looks = ClusterLooks(clock)

    def look(before: ClusterLook) -> ClusterLook:
        nonlocal made
        made += 1
        assert go.wait(WITHIN_S)
        return ClusterLook(rows=({"number": made},))

    before = await looks.newest("a", look)
    assert before.failure == ASKING, "a broker that does not answer holds up no page for long"
    go.set()
    shown = await other_than(before, looks, "a", look)
    assert shown.rows == ({"number": 1},)
    assert await looks.newest("a", look) is shown, "no other look until it is old"
    clock.seconds += LOOK_S + 1
    go.clear()
    assert await looks.newest("a", look) is shown, "the one before is shown meanwhile"
    go.set()
    await other_than(shown, looks, "a", look)
    assert made == 2


@pytest.mark.trio
async def test_a_page_that_asks_several_times_waits_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    go = threading.Event()
    looks = ClusterLooks(HandClock())

    def look(before: ClusterLook) -> ClusterLook:
        assert go.wait(WITHIN_S)
        return ClusterLook()

    try:
        began = trio.current_time()
        for _ in range(5):
            assert (await looks.newest("a", look)).failure == ASKING
        assert trio.current_time() - began == pytest.approx(FIRST_S)
    finally:
        go.set()


@pytest.mark.trio
async def test_who_comes_later_waits_for_another_look_than_an_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else who asks once an hour would always get the figures of an hour ago."""
    monkeypatch.setattr(cluster, "FIRST_S", WITHIN_S)
    clock, made = HandClock(), 0
    looks = ClusterLooks(clock)

    def look(before: ClusterLook) -> ClusterLook:
        nonlocal made
        made += 1
        return ClusterLook(rows=({"number": made},))

    await other_than(None, looks, "a", look)
    clock.seconds += OLD_S + 1
    shown = await looks.newest("a", look)
    assert shown.rows == ({"number": 2},)


async def other_than(
    before: ClusterLook | None, looks: ClusterLooks, account: str, look: Look
) -> ClusterLook:
    """The first look that is another one."""
    with trio.fail_after(WITHIN_S):
        while True:
            shown = await looks.newest(account, look)
            if shown is not before and shown.failure != ASKING:
                return shown
            await trio.sleep(0.01)


@pytest.mark.trio
async def test_each_account_has_its_own_look_and_its_own_failure() -> None:
    looks = ClusterLooks(HandClock())

    def fails(before: ClusterLook) -> ClusterLook:
        raise Failure(503, "unreachable", "no name server answers")

    def works(before: ClusterLook) -> ClusterLook:
        return ClusterLook(rows=({"broker": "a"},))

    failed = await other_than(None, looks, "a", fails)
    assert failed.failure == "no name server answers"
    assert (await other_than(None, looks, "b", works)).rows
    assert await looks.newest("a", fails) is failed


@pytest.mark.trio
async def test_a_look_that_fails_makes_no_cluster_of_one_broker() -> None:
    """Else the own broker's lag would be that of the cluster while no name server answers."""
    clock = HandClock()
    looks = ClusterLooks(clock)
    here, there, gone = (
        row("here", "a:1", own=True),
        row("there", "b:1", in_per_s=7.0),
        row("gone", "c:1", state="dead"),
    )

    def works(before: ClusterLook) -> ClusterLook:
        return ClusterLook(rows=(here, there, gone), dropped={"c:1": 1})

    def fails(before: ClusterLook) -> ClusterLook:
        raise Failure(503, "unreachable", "no name server answers")

    shown = await other_than(None, looks, "a", works)
    for _ in range(2):
        clock.seconds += LOOK_S + 1
        shown = await other_than(shown, looks, "a", fails)
        assert shown.failure == "no name server answers"
        assert shown.dropped == {"c:1": 1}
        assert (shown.rows[0], shown.rows[2]) == (here, gone)
        unknown = shown.rows[1]
        assert (unknown["state"], unknown["why"]) == ("failing", shown.failure)
        assert unknown["in_per_s"] is None
        assert missing_of(shown) == ["gone", "there"]


@pytest.mark.trio
async def test_an_error_of_ours_is_the_failure_of_one_look() -> None:
    clock = HandClock()
    looks = ClusterLooks(clock)

    def nonsense(before: ClusterLook) -> ClusterLook:
        raise OverflowError("integer division result too large for a float")

    def works(before: ClusterLook) -> ClusterLook:
        return ClusterLook(rows=({"broker": "a"},))

    shown = await other_than(None, looks, "a", nonsense)
    assert shown.failure == LOOK_FAILED
    clock.seconds += LOOK_S + 1
    assert (await other_than(shown, looks, "a", works)).rows


@pytest.mark.trio
async def test_a_look_for_which_there_is_no_thread_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HandClock()
    looks = ClusterLooks(clock)

    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    def works(before: ClusterLook) -> ClusterLook:
        return ClusterLook(rows=({"broker": "a"},))

    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "start_thread_soon", no_thread)
        shown = await looks.newest("a", works)
    assert shown.failure == LOOK_FAILED
    clock.seconds += LOOK_S + 1
    assert (await other_than(shown, looks, "a", works)).rows


def row(name: str, address: str, **more: object) -> dict[str, Any]:
    """A broker of a look."""
    place = {"cluster": "c", "broker": name, "id": 0, "address": address, "disk": 0.4}
    return {**place, "state": "up", "own": False, "why": "", "lacks": "", **more}


def test_a_broker_that_the_name_servers_drop_is_dead_for_a_while() -> None:
    both = ClusterLook(rows=[row("a", "h:1"), row("b", "h:2")])
    here = [row("a", "h:1")]
    dropped = dropped_since(both, here, 5)
    assert dropped == {"h:2": 5}
    shown = dropped_row(both.rows[1])
    assert (shown["broker"], shown["state"], shown["disk"]) == ("b", "dead", None)
    later = ClusterLook(rows=[*here, shown], dropped=dropped)
    assert dropped_since(later, here, 4 + DROPPED_MS) == {"h:2": 5}
    assert dropped_since(later, here, 5 + DROPPED_MS) == {}
    # It came back, at another address; or another broker has its address.
    assert dropped_since(later, [*here, row("b", "h:3")], 6) == {}
    assert dropped_since(later, [*here, row("c", "h:2")], 6) == {}


def test_a_master_that_was_missing_is_not_dropped_where_its_group_is() -> None:
    """It has no address: the masters of all other groups that once were missing came with it."""
    missing = ClusterLook(rows=[row("a", ""), row("b", "")])
    assert dropped_since(missing, [row("a", "h:1")], 5) == {}
