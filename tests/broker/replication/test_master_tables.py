"""The tables of a slave are those of its master, and what consumers say at the slave is kept."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.broker.config.settings.failover import FailoverConfig
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.consumers import consumer_offsets
from aerobee.broker.consumers.consumer_offsets import NO_OFFSET
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.broker.replication.master_tables import AGAIN_S, Copies, MasterTables
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.bodies.pop import RequestModeRequest
from aerobee.remoting.wire.bodies.statistics import GroupRecord
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.store.format.system_names import REVIVE_GROUP
from aerobee.store.format.timer import TimerCheck
from aerobee.store.replication.group import Group
from tests.broker.desk import open_desk
from tests.broker.replication.pairs import SLAVE, Link, open_pair, until_true

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio


class Two:
    """A master, a slave, and the service that copies."""

    def __init__(self, master: Desk, slave: Desk) -> None:
        self.master, self.slave, self.link = master, slave, Link(master)
        copies = Copies(
            slave.topics,
            slave.broker.consumers.tables,
            slave.delays,
            slave.request_modes,
            None if slave.broker.timers is None else slave.broker.timers.done,
        )
        self.address = address = MasterAddress("10.0.0.1:10911", "10.0.0.1:10912")
        core = slave.broker.core
        self.tables = MasterTables(core, copies, lambda: address, self.link.connect)

    async def copy(self) -> None:
        await self.tables.copy(self.link)


@asynccontextmanager
async def two(root: Path, **changes: Any) -> AsyncIterator[Two]:
    async with (
        open_desk(root / "master", **changes) as master,
        open_desk(root / "slave", **SLAVE, **changes) as slave,
    ):
        yield Two(master, slave)


def topic(name: str, queues: int = 1) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


async def test_all_tables_are_copied_and_what_the_master_dropped_goes(tmp_path: Path) -> None:
    async with two(tmp_path) as both:
        master, slave = both.master, both.slave
        for number in range(4_500):
            master.topics.put(topic(f"t{number}", 1 + number % 5))
        master.topics.touch(1)
        master.groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=3), 1)
        master.groups.forbid_read("g", "t7", True, 1)
        master.offsets.commit("g", "t1", 0, 17, 1)
        master.delays.move(3, 12)
        mode = RequestModeRequest(topic="t1", consumer_group="g", mode="POP")
        master.request_modes.set(mode)
        await both.copy()
        assert slave.topics.configs == master.topics.configs
        assert slave.topics.version == master.topics.version
        assert both.link.asked.count(21) == 3
        assert slave.groups.configs == master.groups.configs
        assert not slave.groups.may_read("g", "t7")
        assert slave.offsets.query("g", "t1", 0) == 17
        assert slave.delays.offset(3) == 12
        assert slave.request_modes.get("t1", "g") == mode

        gone: list[str] = []
        both.tables.when_topic_gone.append(gone.append)
        both.tables.when_group_gone.append(gone.append)
        assert master.topics.delete("t1", 2, 0)
        assert master.groups.delete("g", 2)
        master.offsets.delete_group("g")
        await both.copy()
        assert gone == ["t1", "g"]
        assert slave.topics.configs == master.topics.configs
        assert slave.groups.get("g") is None
        assert slave.groups.may_read("g", "t7")
        assert slave.offsets.entries == {}


async def test_the_system_topics_of_a_slave_stay(tmp_path: Path) -> None:
    async with two(tmp_path) as both:
        own = set(both.slave.topics.system)
        both.master.topics.configs.clear()
        await both.copy()
        assert {name for name in own if both.slave.topics.is_known(name)}
        assert both.slave.topics.is_known("TBW102")


async def test_offsets_are_merged_by_the_greater_and_moved_back_with_the_master(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as both:
        master, slave = both.master, both.slave
        for desk in (master, slave):
            desk.topics.put(topic("t", 3))
            desk.groups.update(SubscriptionGroupConfig(group_name="g"), 1)
        for queue_id, at in enumerate((10, 20, 30)):
            master.offsets.commit("g", "t", queue_id, at, 1)
        slave.offsets.commit("g", "t", 0, 15, 1)
        slave.offsets.commit("g", "t", 1, 5, 1)
        await both.copy()
        assert [slave.offsets.query("g", "t", n) for n in range(3)] == [15, 20, 30]
        # An administrator resets the group at the master.
        master.offsets.commit("g", "t", 2, 3, 1)
        await both.copy()
        assert [slave.offsets.query("g", "t", n) for n in range(3)] == [15, 20, 3]
        assert slave.offsets.count == 3
        assert slave.offsets.by_group == {"g": 3}


async def test_offsets_that_the_master_has_dropped_go_though_their_group_is_there_again(
    tmp_path: Path,
) -> None:
    """As `deleteSubGroup -r` drops them, where a member that runs makes the group anew at once."""
    async with two(tmp_path) as both:
        master, slave = both.master, both.slave
        for name in ("g", "other"):
            master.groups.update(SubscriptionGroupConfig(group_name=name), 1)
            master.offsets.commit(name, "t", 0, 17, 1)
        await both.copy()
        slave.offsets.commit("own", "t", 0, 3, 1)
        master.offsets.delete_group("g")
        await both.copy()
        assert slave.offsets.query("g", "t", 0) == NO_OFFSET
        assert slave.offsets.query("other", "t", 0) == 17
        assert slave.offsets.query("own", "t", 0) == 3


async def test_offsets_of_a_topic_that_was_made_again_between_two_copies_go(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair, trio.open_nursery() as nursery:
        master, slave = pair.master, pair.slave
        both = Two(master, slave)
        await nursery.start(pair.following.run)
        await nursery.start(both.tables.run)
        master.topic()
        master.groups.update(SubscriptionGroupConfig(group_name="g"), 1)
        for _ in range(9):
            await master.send()
        [(name, queue_id)] = master.store.queues.table
        master.offsets.commit("g", name, queue_id, 8, 1)
        await until_true(lambda: pair.equal)
        await both.copy()
        assert slave.offsets.query("g", name, queue_id) == 8
        # As the deletion does; the topic is there again before the next copy.
        await master.store.space.queues.destroy_topics({name})
        master.offsets.delete_topic(name)
        for _ in range(5):
            await master.send()
        await until_true(lambda: pair.equal)
        await both.copy()
        assert slave.offsets.query("g", name, queue_id) == NO_OFFSET
        master.offsets.commit("g", name, queue_id, 3, 1)
        await both.copy()
        assert slave.offsets.query("g", name, queue_id) == 3
        nursery.cancel_scope.cancel()


class Meanwhile(Link):
    """A master that does something behind its answer about offsets, ahead of the next one."""

    do: Callable[[], Awaitable[None]] | None = None

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        if code == RequestCode.GET_ALL_DELAY_OFFSET and self.do is not None:
            await self.do()
        return await super().call(code, header, body, timeout_s)


async def test_offsets_of_a_topic_that_is_made_again_during_a_copy_go(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair, trio.open_nursery() as nursery:
        master, slave = pair.master, pair.slave
        both = Two(master, slave)
        link = Meanwhile(master)
        renewed: list[str] = []
        slave.store.log_in.after_renewal.add(renewed.append)
        await nursery.start(pair.following.run)
        master.topic()
        for _ in range(9):
            await master.send()
        [(name, queue_id)] = master.store.queues.table
        master.offsets.commit("g", name, queue_id, 8, 1)
        await until_true(lambda: pair.equal)
        await both.tables.copy(link)
        assert slave.offsets.query("g", name, queue_id) == 8
        await nursery.start(both.tables.run)

        async def renew() -> None:
            if not renewed:
                await master.store.space.queues.destroy_topics({name})
                master.offsets.delete_topic(name)
                await master.send()
                await until_true(lambda: pair.equal and bool(renewed))

        link.do = renew
        await both.tables.copy(link)
        assert renewed == [name]
        assert slave.offsets.query("g", name, queue_id) == NO_OFFSET
        nursery.cancel_scope.cancel()


async def test_offsets_of_a_topic_that_is_made_again_while_offsets_are_taken_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path) as both, trio.open_nursery() as nursery:
        master, slave = both.master, both.slave
        monkeypatch.setattr(consumer_offsets, "MERGE_STEP", 1)
        for name in ("a", "t"):
            master.topics.put(topic(name))
            master.offsets.commit("g", name, 0, 8, 1)
        await nursery.start(both.tables.run)
        taken = slave.offsets.note

        def take(name: str, group: str) -> None:
            taken(name, group)
            if name == "a":
                master.offsets.delete_topic("t")
                renewed = slave.store.log_in.after_renewal.tell
                assert renewed is not None
                renewed("t")

        await both.tables.copy(both.link)
        for name in ("a", "t"):
            slave.offsets.delete_topic(name)
        monkeypatch.setattr(slave.offsets, "note", take)
        await both.tables.copy(both.link)
        assert slave.offsets.query("g", "a", 0) == 8
        assert slave.offsets.query("g", "t", 0) == NO_OFFSET
        nursery.cancel_scope.cancel()


async def test_in_a_group_the_progress_of_the_master_counts_as_it_is(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """A master that was cut may have noted the progress of messages that are gone."""
    async with open_pair(tmp_path) as pair:
        both = Two(pair.master, pair.slave)
        master, slave, store = both.master, both.slave, pair.slave.store
        group = Group(2, (1, 2), ())
        store.wait_for_group(group, lambda: store.commit_log.max_offset, 1.0)
        for desk in (master, slave):
            desk.topic()
        await master.send()
        for desk, at in ((master, 1), (slave, 7)):
            desk.offsets.commit("g", "t", 0, at, 1)
            desk.offsets.commit_own(REVIVE_GROUP, "revive", 0, at, 1)
            desk.delays.move(3, at)

        def here() -> tuple[int, int, int]:
            offsets = slave.offsets
            of_revive = offsets.query(REVIVE_GROUP, "revive", 0)
            return offsets.query("g", "t", 0), of_revive, slave.delays.offset(3)

        for desk in (master, slave):
            desk.broker.core.role.epoch = 3
        await nursery.start(both.tables.run)
        await until_true(lambda: both.tables.copied_at > 0)
        assert here() == (7, 7, 7), "progress waits for the log"
        assert both.tables.all_of == 0
        await nursery.start(pair.following.run)
        await until_true(lambda: store.commit_log.max_offset > 0)
        group.confirmed = store.commit_log.max_offset
        store.dispatch()
        await both.copy()
        assert here() == (1, 1, 1)
        slave.offsets.commit("g", "t", 0, 5, 1)
        await both.copy()
        assert here() == (1, 1, 1), "the master alone takes commits"
        await until_true(lambda: both.tables.all_of == 3)
        slave.broker.core.role.epoch = 4
        assert both.tables.all_of == 3, "those of the next master are not here yet"
        assert await both.tables.copied(both.address)
        assert both.tables.all_of == 4
        nursery.cancel_scope.cancel()


async def test_a_message_of_an_unknown_topic_has_the_topics_asked_for_at_once(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    seldom = ReplicationConfig(slave_tables_period_ms=3_600_000)
    async with two(tmp_path, replication=seldom) as both:
        await nursery.start(both.tables.run)
        await until_true(lambda: both.tables.copied_at > 0)
        both.master.topics.changed(topic("new"), 5)
        tell = both.slave.store.log_in.after_begin.tell
        assert tell is not None
        tell("new", 0)
        await until_true(lambda: both.slave.topics.is_known("new"))
        nursery.cancel_scope.cancel()


async def test_a_master_that_does_not_answer_is_said_once_and_asked_again(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with two(tmp_path) as both:
        both.link.down = True
        with capture_logs() as logs:
            await nursery.start(both.tables.run)
            for _ in range(6):
                await wait_all_tasks_blocked()
                mock_clock.jump(AGAIN_S)
            both.link.down = False
            for _ in range(4):
                await wait_all_tasks_blocked()
                mock_clock.jump(AGAIN_S)
        events = [line["event"] for line in logs if "tables" in line["event"]]
        assert events == ["replication.tables_late", "replication.tables_copied"]
        assert both.link.refused >= 3
        nursery.cancel_scope.cancel()


async def test_tables_that_do_not_come_while_the_log_does_are_a_trouble(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with two(tmp_path) as both:
        tables, log_in = both.tables, both.slave.broker.core.store.log_in
        both.link.down = True
        assert not await tables.copied(both.address)
        await trio.sleep(100)
        # A master that is away is none of its tables alone.
        assert not await tables.copied(both.address)
        assert tables.late_s == 0
        for seconds in (50, 61):
            log_in.heard_at = trio.current_time() + seconds
            assert not await tables.copied(both.address)
            assert tables.late_s == seconds
            trouble = tables.trouble()
            assert (trouble is None) is (seconds == 50)
        assert trouble is not None
        assert "have not come for 61 s: 10.0.0.1:10911: refused" in trouble
        both.link.down = False
        assert await tables.copied(both.address)
        assert tables.late_s == 0


async def test_what_services_are_done_with_counts_once_their_copies_are_here(
    tmp_path: Path,
) -> None:
    async with open_pair(tmp_path) as pair:
        both = Two(pair.master, pair.slave)
        master, slave = both.master, both.slave
        for desk in (master, slave):
            desk.topic()
        await master.send()
        master.delays.move(3, 1)
        master.offsets.commit("g", "t", 0, 1, 1)
        master.offsets.commit_own(REVIVE_GROUP, "revive", 0, 1, 1)
        await both.copy()
        assert slave.offsets.query("g", "t", 0) == 1
        assert slave.delays.offset(3) == 0
        assert slave.offsets.query(REVIVE_GROUP, "revive", 0) == -1
        async with trio.open_nursery() as nursery:
            await nursery.start(pair.following.run)
            await both.copy()
            nursery.cancel_scope.cancel()
        assert slave.delays.offset(3) == 1
        assert slave.offsets.query(REVIVE_GROUP, "revive", 0) == 1


async def test_an_offset_of_pops_counts_once_their_check_points_are_here(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        both = Two(pair.master, pair.slave)
        master, slave = both.master, both.slave
        for desk in (master, slave):
            desk.topic()
        master.offsets.commit_popped("g", "t", 0, 1, 1)
        await both.copy()
        await master.send()
        master.offsets.commit_popped("g", "t", 0, 2, 1)
        await both.copy()
        # As the next master it would put back nothing of the second pop.
        assert slave.offsets.query("g", "t", 0) == 1
        async with trio.open_nursery() as nursery:
            await nursery.start(pair.following.run)
            await until_true(lambda: pair.equal)
            nursery.cancel_scope.cancel()
        # Far behind the master again, it takes what it was told then.
        await master.send()
        master.offsets.commit_popped("g", "t", 0, 3, 1)
        await both.copy()
        assert slave.offsets.query("g", "t", 0) == 2


IN_GROUP: dict[str, Any] = {
    "failover": FailoverConfig(etcd_endpoints="http://127.0.0.1:1", failover_members="1;2"),
    "replication": ReplicationConfig(ha_peers="127.0.0.1", ha_listen_port=1),
}


@asynccontextmanager
async def two_of_a_group(root: Path) -> AsyncIterator[Two]:
    slave = SLAVE | IN_GROUP
    async with open_desk(root / "master") as one, open_desk(root / "slave", **slave) as other:
        yield Two(one, other)


async def test_in_a_group_the_progress_of_the_master_counts_also_where_it_is_less(
    tmp_path: Path,
) -> None:
    async with two_of_a_group(tmp_path) as both:
        master, slave = both.master, both.slave
        for desk in (master, slave):
            desk.topics.put(topic("t"))
        master.offsets.commit("g", "t", 0, 3, 1)
        master.delays.move(2, 4)
        # It was the master itself, and its log was cut.
        slave.offsets.commit("g", "t", 0, 9, 1)
        slave.offsets.commit_own(REVIVE_GROUP, "revive", 0, 5, 1)
        slave.delays.move(2, 7)
        timers = slave.broker.timers
        assert timers is not None
        timers.done.take(TimerCheck(last_read_time_ms=9_000, queue_offset=4))
        await both.copy()
        assert slave.offsets.entries == {"t@g": {0: 3}}
        assert slave.delays.offset(2) == 4
        assert not timers.done.covers(3, 8_999), "its copy may have been cut: it is delivered again"


@pytest.mark.parametrize(
    ("member", "held", "serves", "served", "goes"),
    [
        # The next master, which has not added the topics of the last second yet.
        (2, True, False, False, False),
        (3, True, False, False, False),
        (2, True, True, True, True),
        # The old one, which hands over.
        (2, False, False, True, True),
        # The next master, which has lost the lease before it had added them.
        (2, False, False, False, False),
    ],
)
async def test_in_a_group_a_topic_goes_where_a_master_that_has_all_of_them_lacks_it(
    tmp_path: Path, *, member: int, held: bool, serves: bool, served: bool, goes: bool
) -> None:
    async with two_of_a_group(tmp_path) as both:
        master, slave = both.master, both.slave
        record = GroupRecord(
            epoch=2,
            master=2,
            sync_set=[1, 2, 3],
            set_epoch=2,
            held=held,
            member=member,
            served=served,
        )
        master.broker.replication.status.record = lambda: record
        master.broker.core.role.is_slave = not serves
        slave.topics.put(topic("young"))
        master.topics.put(topic("old"))
        await both.copy()
        assert slave.topics.is_known("old")
        assert slave.topics.is_known("young") is not goes
        assert ("young" in slave.topics.deleted.log_ends) is goes


async def test_in_a_group_what_changes_comes_each_second(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with two_of_a_group(tmp_path) as both:
        master, slave = both.master, both.slave
        await nursery.start(both.tables.run)
        master.topics.put(topic("t"))
        for round_number in range(3):
            master.topics.changed(topic(f"t{round_number}"), 5 + round_number)
            master.groups.update(SubscriptionGroupConfig(group_name=f"g{round_number}"), 1)
            master.offsets.commit("g", "t", 0, round_number, 1)
            for _ in range(3):
                await wait_all_tasks_blocked()
                mock_clock.jump(1.0)
            await wait_all_tasks_blocked()
            assert slave.topics.is_known(f"t{round_number}")
            assert slave.groups.get(f"g{round_number}") is not None
            assert slave.offsets.query("g", "t", 0) == round_number
        both.link.asked.clear()
        for _ in range(3):
            mock_clock.jump(1.0)
            await wait_all_tasks_blocked()
        # Of a table without a change its first entry is asked for, which has the version.
        times = both.link.asked.count(43)
        assert times >= 3
        assert both.link.asked.count(21) == both.link.asked.count(201) == times
        nursery.cancel_scope.cancel()


async def test_the_check_point_of_the_timers_is_copied(tmp_path: Path) -> None:
    async with two(tmp_path) as both:
        check = TimerCheck(last_read_time_ms=9_000, queue_offset=4)
        timers = both.master.broker.timers
        assert timers is not None
        assert timers.wheel is not None
        timers.wheel.timers.check.value = check
        timers.wheel.timers.queue_offset = 4
        await both.copy()
        done = both.slave.broker.timers
        assert done is not None
        assert done.done.covers(3, 8_999)
        assert not done.done.covers(4, 8_999)


async def test_a_master_without_timers_has_no_check_point(tmp_path: Path) -> None:
    async with two(tmp_path, timer_wheel_enable=False) as both:
        await both.copy()
        assert both.tables.copied_at > 0
