import dataclasses
import json
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.errors import Refusal
from aerobee.broker.namesrv.kv_config import KvConfigTable
from aerobee.broker.namesrv.registration import (
    RETRY_S,
    TOPICS_AT_ONCE,
    Identity,
    Registration,
)
from aerobee.broker.namesrv.route_processor import RouteProcessor
from aerobee.broker.namesrv.route_table import RouteTable
from aerobee.broker.topics.topics import TopicTable, internal_topic
from aerobee.remoting.errors import CallTimedOut, ConnectFailed
from aerobee.remoting.server.routes import finished
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.header import Header
from aerobee.remoting.wire.headers import namesrv
from tests.broker.namesrv.test_route_processor import Settings
from tests.broker.peers import HandClock, Peer, Saved, request

OPTIONS = BrokerOptions(broker_name="broker-a")


class Elsewhere:
    """A name server in another process, without the process: our own, behind its requests."""

    def __init__(self) -> None:
        self.routes = RouteTable()
        self.kv = KvConfigTable()
        self.reachable = True
        self.silent = False
        self.busy = False
        self.thinks: trio.Event | None = None
        """What is asked about the version is answered then."""
        self.seen: list[tuple[int, list[str]]] = []
        self.connections = 0
        processor = RouteProcessor(
            routes=self.routes,
            kv=self.kv,
            saved=Saved(),
            advertised={},
            settings=Settings(),
            clock=HandClock(),
        )
        self.handlers: dict[int, tuple[type[Header], Any]] = {
            int(header.code): (header, handler)
            for header, handler in (
                (namesrv.RegisterBroker, processor.register),
                (namesrv.UnregisterBroker, processor.unregister),
                (namesrv.RegisterTopicInNamesrv, processor.register_topic),
                (namesrv.QueryDataVersion, processor.query_data_version),
            )
        }

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator["Elsewhere"]:
        async with trio.open_nursery():
            if not self.reachable:
                raise ConnectFailed(f"{address} refused")
            self.connections += 1
            yield self

    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command:
        await trio.lowlevel.checkpoint()
        if self.silent:
            raise CallTimedOut("no answer")
        if self.busy:
            return Command(code=int(ResponseCode.SYSTEM_BUSY), remark="no time")
        topics: list[str] = []
        if code == namesrv.RegisterBroker.code:
            topics = sorted(json.loads(body)["topicConfigSerializeWrapper"]["topicConfigTable"])
        elif isinstance(header, namesrv.RegisterTopicInNamesrv):
            topics = [header.topic]
        self.seen.append((int(code), topics))
        assert header is not None
        if code == namesrv.QueryDataVersion.code and self.thinks is not None:
            await self.thinks.wait()
        header_type, handler = self.handlers[int(code)]
        sent = request(code, body)
        sent.ext = header.ext()
        try:
            answer = handler(sent.header(header_type), sent, Peer())
            answer = finished(answer) if isinstance(answer, Generator) else answer
        except Refusal as refused:
            answer = Answer(refused.code, remark=refused.remark)
        ext = answer.header.ext() if answer.header is not None else {}
        return Command(code=answer.code, ext=ext, remark=answer.remark, body=answer.body)

    def perms(self, topic: str) -> list[int]:
        route = self.routes.route(topic)
        return [] if route is None else [queue.perm for queue in route.queue_datas]


def identity() -> Identity:
    return Identity(
        cluster="DefaultCluster",
        broker="broker-a",
        broker_id=0,
        address="10.0.0.1:10911",
        ha_address="10.0.0.1:10912",
    )


class Desk:
    """A broker's registration, one name server elsewhere and one inside."""

    def __init__(
        self, *, permission: int = 6, force: bool = True, one_by_one: bool = False
    ) -> None:
        self.elsewhere = Elsewhere()
        self.inside = RouteTable()
        self.topics = TopicTable(OPTIONS)
        self.registration = Registration(
            identity=identity(),
            settings=dataclasses.replace(
                OPTIONS,
                force_register=force,
                broker_permission=permission,
                enable_single_topic_register=one_by_one,
            ),
            topics=self.topics,
            clock=HandClock(),
            routes=self.inside,
            name_servers=["ns:9876"],
            connect=self.elsewhere.connect,
        )
        self.topics.listeners.append(self.registration.topics_changed)

    @property
    def codes(self) -> list[int]:
        return [code for code, _ in self.elsewhere.seen]

    def create(self, topic: str) -> None:
        self.topics.for_send(topic, "TBW102", 4, 0)


@pytest.mark.trio
async def test_a_broker_registers_all_its_topics_when_it_starts(nursery: trio.Nursery) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.elsewhere.seen == [(103, sorted(desk.topics.configs))]
    assert desk.elsewhere.perms("TBW102") == [7]
    route = desk.elsewhere.routes.route("TBW102")
    assert route is not None
    assert dict(route.broker_datas[0].broker_addrs) == {0: "10.0.0.1:10911"}
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_new_topic_is_registered_at_once_and_alone(nursery: trio.Nursery) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    desk.create("T")
    await trio.testing.wait_all_tasks_blocked()
    assert desk.elsewhere.seen[1:] == [(103, ["T"])]
    assert desk.elsewhere.perms("T") == [6]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_changed_topics_are_registered_one_by_one_where_that_is_wanted(
    nursery: trio.Nursery,
) -> None:
    """A name server with deleteTopicWithBrokerRegistration takes each 103 for the whole table."""
    desk = Desk(one_by_one=True)
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    desk.create("T")
    desk.create("U")
    await trio.testing.wait_all_tasks_blocked()
    assert desk.elsewhere.seen[0][0] == 103
    assert sorted(desk.elsewhere.seen[1:]) == [(217, ["T"]), (217, ["U"])]
    assert desk.elsewhere.perms("T") == [6]
    assert desk.topics.delete("T", 0, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.codes == [103, 217, 217]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_topic_that_is_deleted_while_others_are_registered_gets_no_route(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay for good: nothing takes the route of a topic back that has gone already."""
    desk = Desk(one_by_one=True)
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    call, routes = desk.elsewhere.call, desk.elsewhere.routes

    async def then_delete(*asked: Any) -> Command:
        answer = await call(*asked)
        if asked[0] == namesrv.RegisterTopicInNamesrv.code:
            for topic in {"T", "U"} - {asked[1].topic} & desk.topics.configs.keys():
                desk.topics.delete(topic, 0, 0)
                routes.delete_topic(topic)
        return answer

    monkeypatch.setattr(desk.elsewhere, "call", then_delete)
    desk.create("T")
    desk.create("U")
    await trio.testing.wait_all_tasks_blocked()
    assert routes.queues.table.keys() & {"T", "U"} == desk.topics.configs.keys() & {"T", "U"}
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_many_changed_topics_are_registered_as_the_whole_table_and_not_one_by_one(
    nursery: trio.Nursery,
) -> None:
    desk = Desk(one_by_one=True)
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    for number in range(TOPICS_AT_ONCE + 1):
        desk.create(f"T{number}")
    await trio.testing.wait_all_tasks_blocked()
    assert desk.elsewhere.seen[1:] == [(103, sorted(desk.topics.configs))]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_everything_is_registered_again_every_30_seconds_however_often_topics_change(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    for number in range(7):
        await trio.sleep(10)
        desk.create(f"T{number}")
    await trio.sleep(1)
    whole = [topics for _, topics in desk.elsewhere.seen if len(topics) > 1]
    assert len(whole) == 3
    assert next(topics for _, topics in desk.elsewhere.seen if len(topics) == 1) == ["T0"]
    assert finished(desk.elsewhere.routes.topics()) == sorted(desk.topics.configs)
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_name_server_that_cannot_be_reached_is_tried_again_and_logged_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    desk.elsewhere.reachable = False
    with capture_logs() as logs:
        await nursery.start(desk.registration.run)
        desk.create("T")
        await trio.sleep(5 * RETRY_S)
        desk.elsewhere.reachable = True
        await trio.sleep(RETRY_S + 0.1)
    mine = [entry["event"] for entry in logs if entry["event"].startswith("namesrv.")]
    assert mine == ["namesrv.unreachable", "namesrv.registered"]
    assert logs[0]["reason"] == "ns:9876 refused"
    assert desk.elsewhere.perms("T") == [6]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_changes_are_not_kept_for_a_name_server_that_cannot_be_reached(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The next connection begins with the whole table."""
    desk = Desk()
    (link,) = desk.registration.links
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    desk.elsewhere.silent = True
    for number in range(100):
        desk.create(f"T{number}")
        if number not in {50, 99}:
            desk.topics.delete(f"T{number}", 0, 0)
        if number == 50:
            desk.elsewhere.reachable = False
            await trio.sleep(RETRY_S)
    assert not link.changed
    desk.elsewhere.silent, desk.elsewhere.reachable = False, True
    await trio.sleep(2 * RETRY_S)
    assert desk.elsewhere.perms("T99") == [6]
    assert finished(desk.elsewhere.routes.topics()) == sorted(desk.topics.configs)
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_name_server_that_does_not_answer_is_connected_to_anew(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    desk.elsewhere.silent = True
    desk.create("T")
    await trio.sleep(1)
    desk.elsewhere.silent = False
    await trio.sleep(RETRY_S)
    assert desk.elsewhere.connections == 2
    assert desk.elsewhere.perms("T") == [6]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_name_server_that_forgot_us_gets_everything_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    desk.elsewhere.routes.expire(10**12)
    desk.create("T")
    await trio.sleep(RETRY_S + 1)
    assert finished(desk.elsewhere.routes.topics()) == sorted(desk.topics.configs)
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_without_force_the_version_is_asked_for_first(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk(force=False)
    await nursery.start(desk.registration.run)
    await trio.sleep(31)
    # Over a connection nothing is asked before the first registration: it is what keeps the broker
    # in the routes when the end of the connection before is noticed.
    assert desk.codes == [103, 322]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_refused_registration_keeps_the_connection_and_the_routes_that_hang_on_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    desk.elsewhere.busy = True
    desk.create("T")
    await trio.sleep(3 * RETRY_S)
    desk.elsewhere.busy = False
    await trio.sleep(RETRY_S)
    assert desk.elsewhere.connections == 1
    assert desk.elsewhere.perms("T") == [6]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_registration_that_is_being_made_is_not_sent_behind_the_good_bye(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk(force=False)
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    desk.elsewhere.routes.expire(10**12)
    thinks = desk.elsewhere.thinks = trio.Event()
    await trio.sleep(31)
    await desk.registration.leave()
    thinks.set()
    await trio.sleep(100)
    assert desk.codes == [103, 322, 104]
    assert desk.elsewhere.routes.brokers == {}
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_broker_says_good_bye_and_registers_no_more(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk()
    desk.registration.register_own()
    await nursery.start(desk.registration.run)
    await trio.sleep(1)
    await desk.registration.leave()
    desk.create("T")
    await trio.sleep(100)
    assert desk.codes == [103, 104]
    assert desk.elsewhere.routes.brokers == {}
    assert desk.inside.brokers == {}
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_good_bye_to_a_silent_name_server_does_not_fail(nursery: trio.Nursery) -> None:
    desk = Desk()
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    desk.elsewhere.silent = True
    await desk.registration.leave()
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_topics_that_are_ordered_there_are_marked_here(nursery: trio.Nursery) -> None:
    desk = Desk()
    desk.create("T")
    desk.elsewhere.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    desk.elsewhere.kv.put("ORDER_TOPIC_CONFIG", "Unknown", "broker-a:4")
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.topics.configs["T"].order
    assert desk.topics.get("Unknown") is None
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_bit_that_the_broker_lacks_is_taken_from_its_topics(nursery: trio.Nursery) -> None:
    desk = Desk(permission=4)
    desk.registration.register_own()
    await nursery.start(desk.registration.run)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.elsewhere.perms("TBW102") == [4]
    inside = desk.inside.route("TBW102")
    assert inside is not None
    assert inside.queue_datas[0].perm == 4
    assert desk.topics.configs["TBW102"].perm == 7
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_after_a_restart_a_name_server_that_missed_it_knows_the_permission(
    nursery: trio.Nursery,
) -> None:
    """As that of a lame duck: its topics are the same, and those of the next start are written
    to."""
    before, now = Desk(), Desk()
    await in_slices(before.registration.wipe_write_permission())
    now.registration.connect = before.elsewhere.connect
    now.topics.version = before.topics.version
    for desk, perm in ((before, 4), (now, 7)):
        await nursery.start(desk.registration.run)
        await trio.testing.wait_all_tasks_blocked()
        assert before.elsewhere.perms("TBW102") == [perm]
    nursery.cancel_scope.cancel()


def test_a_registration_is_written_in_pieces_and_reads_as_one() -> None:
    """20,000 topics in one step would keep everybody waiting, twice a minute."""
    topics = TopicTable(OPTIONS)
    for number in range(500):
        topics.put(internal_topic(f"t{number}", 1 + number % 8))
    registration = Registration(
        identity=identity(),
        settings=OPTIONS,
        topics=topics,
        clock=HandClock(),
        name_servers=["n:1"],
        connect=Elsewhere().connect,
    )
    [link] = registration.links
    for names in ([*topics.configs, "gone"], []):
        pieces = list(link.body(names))
        there = {name: topics.configs[name] for name in names if name in topics.configs}
        whole = RegisterBrokerBody.of(there, topics.version).to_bytes()
        assert json.loads(b"".join(pieces)) == json.loads(whole)
        assert max(map(len, pieces)) < 20_000


@pytest.mark.trio
async def test_a_registration_that_came_late_puts_no_earlier_master_back(
    nursery: trio.Nursery,
) -> None:
    before, now = Desk(), Desk(force=False)
    now.registration.connect = before.elsewhere.connect
    now.registration.identity = dataclasses.replace(identity(), address="10.0.0.2:10911")
    for epoch, desk in ((5, before), (6, now)):
        desk.registration.epoch = partial(int, epoch)
        await nursery.start(desk.registration.run)
        await trio.testing.wait_all_tasks_blocked()

    def master() -> str | None:
        route = before.elsewhere.routes.route("TBW102")
        return None if route is None else route.broker_datas[0].broker_addrs.get(0)

    assert master() == "10.0.0.2:10911"
    # Sent while it was the master, over a network that has stood still meanwhile.
    before.registration.become_master()
    await trio.testing.wait_all_tasks_blocked()
    assert master() == "10.0.0.2:10911"
    # The version that is asked about is the one that was registered.
    now.registration.become_master()
    await trio.testing.wait_all_tasks_blocked()
    assert before.codes[-1] == namesrv.QueryDataVersion.code
    nursery.cancel_scope.cancel()


def test_the_name_server_inside_knows_a_topic_as_soon_as_it_exists() -> None:
    desk = Desk()
    desk.registration.register_own()
    assert finished(desk.inside.topics()) == sorted(desk.topics.configs)
    desk.create("T")
    assert desk.inside.route("T") is not None
    desk.topics.delete("T", 0, 0)
    assert desk.inside.route("T") is None


def test_changes_before_the_start_are_part_of_the_first_registration() -> None:
    desk = Desk()
    desk.create("T")
    desk.registration.register_own()
    assert desk.inside.route("T") is not None


@pytest.mark.trio
@pytest.mark.parametrize("there", [True, False])
async def test_a_route_inside_that_is_deleted_comes_back_while_the_broker_has_the_topic(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, there: bool
) -> None:
    """Tools delete a topic at the broker first, and a send may make it anew in between."""
    desk = Desk()
    desk.registration.register_own()
    await nursery.start(desk.registration.run)
    desk.create("T")
    desk.inside.delete_topic("T", "DefaultCluster")
    if not there:
        desk.topics.delete("T", 0, 0)
    await trio.sleep(29)
    assert desk.inside.route("T") is None
    await trio.sleep(2)
    assert (desk.inside.route("T") is not None) is there
    assert desk.inside.own_deleted == set()
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_without_name_servers_there_is_nothing_to_do(nursery: trio.Nursery) -> None:
    topics = TopicTable(OPTIONS)
    registration = Registration(
        identity=identity(),
        settings=OPTIONS,
        topics=topics,
        clock=HandClock(),
        connect=Elsewhere().connect,
    )
    await nursery.start(registration.run)
    registration.register_own()
    registration.topics_changed(["T"])
    await registration.leave()
    nursery.cancel_scope.cancel()
