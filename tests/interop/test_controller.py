"""The four calls of a decider against RocketMQ's own controllers, which also act by themselves."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.failover.decider import ChangeRefused, DeciderSilent, Sight
from aerobee.broker.failover.deciders.controller import Controller, LogFigures
from aerobee.broker.failover.deciders.controller_identity import (
    NAME,
    TEMP_NAME,
    Identities,
    Identity,
    Member,
    identify,
)
from aerobee.broker.failover.deciders.controller_links import ControllerLinks
from aerobee.broker.failover.record import Record, elected, first_record, given_back, with_set
from aerobee.broker.namesrv.name_server_link import connected
from aerobee.remoting.client.link import PLAIN
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.controller import ApplyBrokerId
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from tests.kit.java import toolkit
from tests.kit.java_controller import JavaControllers
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aerobee.broker.replication.master_calls import Connect

pytestmark = pytest.mark.interop

LEASE_S = 3.0
WITHIN_S = 120
"""For what controllers do within a few seconds on a machine that has nothing else to do."""
EMPTY_LOG = LogFigures(0, 0, 0)
CONNECT: Connect = partial(connected, connect_timeout_s=3.0, link=PLAIN)


@pytest.fixture(scope="module", params=["5.4.0", "5.5.0"])
def controllers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaControllers]:
    started = JavaControllers(toolkit(request.param), tmp_path_factory.mktemp("controllers"))
    yield started
    started.stop()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A brokerName of this test alone."""
    name: str = request.node.originalname
    return name.removeprefix("test_")


@dataclass
class Broker:
    """A member without a log: what it says of one is what a test sets."""

    decider: Controller
    links: ControllerLinks
    number: int
    scope: trio.CancelScope
    figures: LogFigures | None = EMPTY_LOG

    async def seen(self) -> Record:
        record = (await self.decider.look(None, 0)).record
        assert record is not None
        return record

    async def until(self, *, master: int, held: bool) -> Sight:
        """What there is as soon as that member is the master."""
        sight: Sight | None = None
        with trio.fail_after(WITHIN_S):
            while True:
                sight = await self.decider.look(sight, 1)
                record = sight.record
                if record is not None and record.master == master and sight.held is held:
                    return sight

    async def lead(self) -> Sight:
        """Take what there is to be taken."""
        with trio.fail_after(WITHIN_S):
            while True:
                try:
                    taken = await self.take(await self.decider.look(None, 0))
                except ChangeRefused:
                    await trio.sleep(0.1)
                else:
                    assert taken.record is not None
                    self.figures = LogFigures(taken.record.epoch, 0, 0)
                    return taken

    async def take(self, sight: Sight) -> Sight:
        return await self.decider.take(sight, lambda lease: self.wish(sight, lease))

    def wish(self, sight: Sight, lease: str) -> Record:
        if sight.record is None:
            return first_record(self.number, lease)
        return elected(sight.record, self.number, lease, 1)

    async def admit(self, sight: Sight, *members: int) -> Sight:
        """Have the sync set be these, as soon as all of them are heard."""
        with trio.fail_after(WITHIN_S):
            while True:
                record = sight.record
                assert record is not None
                if record.sync_set == members:
                    return sight
                try:
                    changed = with_set(record, members)
                    sight = await self.decider.change(sight, changed, record.lease)
                except ChangeRefused:
                    await trio.sleep(0.1)

    def die(self) -> None:
        """As a process that is killed: its connections close."""
        self.scope.cancel()


@asynccontextmanager
async def connection(controllers: JavaControllers) -> AsyncIterator[ControllerLinks]:
    links = ControllerLinks(controllers.addresses, 2.0, CONNECT)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        yield links
        nursery.cancel_scope.cancel()


def member_of(group: str, port: int, cluster: str = "cluster") -> Member:
    return Member(cluster, group, f"127.0.0.1:{port}")


@asynccontextmanager
async def broker(
    controllers: JavaControllers, root: Path, group: str, port: int, cluster: str = "cluster"
) -> AsyncIterator[Broker]:
    """A member that has a number, and is heard for as long as the block or until it dies."""
    root = root / str(port)
    root.mkdir(exist_ok=True)
    member = member_of(group, port, cluster)
    async with trio.open_nursery() as nursery:
        links = ControllerLinks(controllers.addresses, 2.0, CONNECT)
        made: list[Broker] = []

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as life:
                    await life.start(links.run)
                    number = await identify(Disk(), root, links, member, TrioClock())
                    decider = Controller(
                        links, CONNECT, member, number, LEASE_S, lambda: made[0].figures
                    )
                    made.append(Broker(decider, links, number, scope))
                    await life.start(decider.run)
                    task_status.started()
                    sight: Sight | None = None
                    while True:
                        with suppress(DeciderSilent):
                            sight = await decider.look(sight, 1)

        await nursery.start(run)
        yield made[0]
        nursery.cancel_scope.cancel()


# ── Numbers ──


@pytest.mark.trio
async def test_numbers_are_given_once_and_stay_with_their_directory(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with connection(controllers) as links:

        async def number(port: int) -> int:
            root = tmp_path / str(port)
            root.mkdir(exist_ok=True)
            return await identify(Disk(), root, links, member_of(group, port), TrioClock())

        assert [await number(port) for port in (1, 2, 3, 2, 1)] == [1, 2, 3, 2, 1]
    assert (tmp_path / "2" / NAME).read_bytes() == f"cluster#{group}#2".encode()
    assert not (tmp_path / "2" / TEMP_NAME).exists()


@pytest.mark.trio
async def test_a_number_that_was_asked_for_before_a_crash_is_asked_for_again(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    files = Identities(Disk(), tmp_path, member_of(group, 1))
    async with connection(controllers) as links:
        files.asked(Identity(1, "127.0.0.1:1;5"))
        ask = ApplyBrokerId(
            cluster_name="cluster",
            broker_name=group,
            applied_broker_id=1,
            register_check_code="127.0.0.1:1;5",
        )
        assert (await links.call(ask)).code == ResponseCode.SUCCESS
        assert await identify(Disk(), tmp_path, links, member_of(group, 1), TrioClock()) == 1
        # And one that another member was faster with is given up.
        (tmp_path / NAME).unlink()
        files.asked(Identity(1, "127.0.0.1:2;6"))
        assert await identify(Disk(), tmp_path, links, member_of(group, 2), TrioClock()) == 2


@pytest.mark.trio
async def test_a_number_that_the_controller_does_not_know_is_refused(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    Identities(Disk(), tmp_path, member_of(group, 1)).granted(Identity(9))
    async with connection(controllers) as links:
        with pytest.raises(StoreRefused, match="knows no member 9"):
            await identify(Disk(), tmp_path, links, member_of(group, 1), TrioClock())


# ── Elections and sync sets ──


@pytest.mark.trio
async def test_the_first_that_asks_is_the_master(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2) as other,
    ):
        assert await one.decider.look(None, 0) == (None, 0, False, 0)
        record = (await one.lead()).record
        assert record is not None
        assert (record.epoch, record.master, record.sync_set) == (1, 1, (1,))
        assert record.address == "127.0.0.1:1"
        assert await one.decider.renew(record.lease)
        seen = await other.decider.look(None, 0)
        assert seen.held
        with pytest.raises(ChangeRefused):
            await other.take(seen)
        assert await other.decider.members() == {1: "127.0.0.1:1", 2: "127.0.0.1:2"}


@pytest.mark.trio
async def test_the_sync_set_changes_by_compare_and_swap(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2) as other,
    ):
        alone = await one.lead()
        both = await one.admit(alone, 1, 2)
        assert both.record is not None
        assert both.record.sync_set == (1, 2)
        assert both.version == alone.version + 1
        assert await other.decider.look(None, 0) == both
        assert alone.record is not None
        with pytest.raises(ChangeRefused):
            # Of a record that is not there any more; the same as is there counts as done.
            await one.decider.change(alone, with_set(alone.record, (1,)), alone.record.lease)
        again = with_set(alone.record, (1, 2))
        assert await one.decider.change(alone, again, alone.record.lease) == both
        with pytest.raises(ChangeRefused):
            await other.decider.change(both, with_set(both.record, (1,)), both.record.lease)
        with pytest.raises(ChangeRefused, match="no member that is to join"):
            await one.decider.change(both, with_set(both.record, (1, 2, 7)), both.record.lease)
        # A member that is not heard does not join, and does not keep the rest from changing.
        rest = await one.decider.change(both, with_set(both.record, (1, 7)), both.record.lease)
        assert rest.record is not None
        assert rest.record.sync_set == (1,)


@pytest.mark.trio
async def test_the_next_master_comes_out_of_the_sync_set_when_one_dies(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2) as two,
        broker(controllers, tmp_path, group, 3) as three,
    ):
        await one.admit(await one.lead(), 1, 2)
        one.die()
        await two.until(master=2, held=False)
        assert (await three.decider.look(None, 0)).held
        taken = await two.lead()
        assert taken.record is not None
        assert (taken.record.epoch, taken.record.sync_set) == (2, (2,))
        assert await two.decider.renew(taken.record.lease)
        # Without a master only one of the sync set is elected: the others may lack messages.
        two.die()
        sight = await three.until(master=2, held=False)
        with pytest.raises(ChangeRefused):
            await three.take(sight)
        async with broker(controllers, tmp_path, group, 2) as again:
            again.figures = LogFigures(2, 0, 0)
            record = (await again.lead()).record
            assert record is not None
            assert record.epoch > 2
            assert record.sync_set == (2,)


@pytest.mark.trio
async def test_a_lease_that_is_given_back_goes_to_the_heir(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2),
        broker(controllers, tmp_path, group, 3) as three,
    ):
        both = await one.admit(await one.lead(), 1, 2, 3)
        assert both.record is not None
        await one.decider.change(both, given_back(both.record, 3), both.record.lease)
        assert not await one.decider.renew(both.record.lease)
        await three.until(master=3, held=False)
        both = await three.admit(await three.lead(), 1, 2, 3)
        assert both.record is not None
        # Without an heir the controller elects, as of one that is dead.
        await three.decider.change(both, given_back(both.record), both.record.lease)
        sight = await one.decider.look(None, 0)
        with trio.fail_after(WITHIN_S):
            while sight.record is None or sight.record.master == 3:
                sight = await one.decider.look(sight, 1)


@pytest.mark.trio
async def test_a_master_that_renews_no_more_is_followed_by_another(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    """Its process lives on, and is silent once the lease is over by its own clock."""
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2) as two,
    ):
        await one.admit(await one.lead(), 1, 2)
        await two.until(master=2, held=False)
        assert one.decider.silent or (await one.seen()).master == 2


@pytest.mark.trio
async def test_a_process_that_began_anew_does_not_lead_the_epoch_of_the_one_before(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    """A crash may have taken bytes of it that slaves have: the same epoch would have two logs."""
    async with broker(controllers, tmp_path, group, 1) as one, connection(controllers):
        first = await one.lead()
        assert first.record is not None
        again = Controller(
            one.links,
            CONNECT,
            member_of(group, 1),
            one.number,
            LEASE_S,
            lambda: LogFigures(first.record.epoch if first.record else 0, 0, 0),
        )
        seen = await again.look(None, 0)
        assert (seen.held, again.silent) == (True, True)
        with pytest.raises(ChangeRefused):
            await again.take(seen, lambda lease: one.wish(seen, lease))


@pytest.mark.trio
async def test_a_member_that_may_not_be_the_master_is_not_heard(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    async with (
        broker(controllers, tmp_path, group, 1) as one,
        broker(controllers, tmp_path, group, 2) as two,
    ):
        two.figures = None
        alone = await one.lead()
        assert alone.record is not None
        assert two.decider.silent
        with pytest.raises(ChangeRefused, match="no member that is to join"):
            await one.decider.change(alone, with_set(alone.record, (1, 2)), alone.record.lease)


# ── Several controllers ──


@pytest.mark.trio
async def test_calls_go_to_the_leader_and_survive_its_change(group: str, tmp_path: Path) -> None:
    home = tmp_path / "controllers"
    three = JavaControllers(toolkit("5.4.0"), home, 3)
    try:
        async with broker(three, tmp_path, group, 1) as one:
            taken = await one.lead()
            assert taken.record is not None
            assert await one.decider.renew(taken.record.lease)
            three.kill(await trio.to_thread.run_sync(three.until_led))
            silent = 0
            with trio.fail_after(WITHIN_S):
                while True:
                    try:
                        record = await one.seen()
                        break
                    except DeciderSilent:
                        silent += 1
            assert record.sync_set == (1,)
            for address in three.running:
                three.kill(address)
            with pytest.raises(DeciderSilent):
                await one.seen()
    finally:
        three.stop()


@pytest.mark.trio
async def test_a_controller_that_elects_outside_of_the_sync_set_is_known(
    controllers: JavaControllers, group: str, tmp_path: Path
) -> None:
    unclean = JavaControllers(
        toolkit("5.4.0"), tmp_path / "unclean", settings={"enableElectUncleanMaster": "true"}
    )
    try:
        async with (
            broker(controllers, tmp_path, group, 1) as one,
            broker(unclean, tmp_path, group, 2) as other,
        ):
            with trio.fail_after(WITHIN_S):
                while True:
                    await trio.sleep(0.1)
                    if other.decider.elects_unclean:
                        break
            assert not one.decider.elects_unclean
    finally:
        unclean.stop()
