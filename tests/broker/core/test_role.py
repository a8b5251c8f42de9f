"""A broker that starts as a slave, and what runs in it before and after it becomes the master."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.broker.core.role import OnShift, Role

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.trio


class Runs:
    """A service that says whether it runs."""

    def __init__(self) -> None:
        self.running = False

    async def run(self, *, task_status: trio.TaskStatus[None]) -> NoReturn:
        self.running = True
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.running = False


async def test_services_of_a_role_run_while_the_broker_has_it(nursery: trio.Nursery) -> None:
    role = Role(slave=True)
    of_master, of_slave = Runs(), Runs()
    await nursery.start(OnShift(role.works, [of_master]).run)
    await nursery.start(OnShift(role.follows, [of_slave]).run)
    assert role.is_slave
    assert (of_master.running, of_slave.running) == (False, True)
    await role.stop_following()
    assert role.is_slave
    assert (of_master.running, of_slave.running) == (False, False)
    role.become_master(1)
    await wait_all_tasks_blocked()
    assert not role.is_slave
    assert (of_master.running, of_slave.running) == (True, False)


async def test_a_master_is_the_master_from_the_start() -> None:
    role = Role(slave=False)
    assert role.works.is_on
    assert not role.is_slave


async def test_a_master_hands_over_and_may_be_the_master_again(nursery: trio.Nursery) -> None:
    role = Role(slave=False)
    of_master, of_slave = Runs(), Runs()
    await nursery.start(OnShift(role.works, [of_master]).run)
    await nursery.start(OnShift(role.follows, [of_slave]).run)
    for _ in range(2):
        assert (of_master.running, of_slave.running) == (True, False)
        await role.stop_working()
        assert role.is_slave
        assert (of_master.running, of_slave.running) == (False, False)
        role.follow_again()
        await wait_all_tasks_blocked()
        assert (of_master.running, of_slave.running) == (False, True)
        await role.stop_following()
        role.become_master(2)
        await wait_all_tasks_blocked()
    await role.stop_working()
    role.work_again()
    await wait_all_tasks_blocked()
    assert (role.is_slave, role.epoch, of_master.running) == (False, 2, True)


async def test_an_end_that_was_given_up_does_not_end_the_next_time(nursery: trio.Nursery) -> None:
    role, of_master = Role(slave=False), Runs()
    await nursery.start(OnShift(role.works, [of_master]).run)
    with trio.CancelScope() as scope:
        scope.cancel()
        await role.stop_working()
    role.work_again()
    await wait_all_tasks_blocked()
    assert of_master.running
    await role.stop_working()
    assert not of_master.running


async def test_a_time_that_ends_before_the_one_in_front_of_it_does_is_over_with_that_one(
    nursery: trio.Nursery,
) -> None:
    role, ended = Role(slave=True), trio.Event()

    class Slow(Runs):
        async def run(self, *, task_status: trio.TaskStatus[None]) -> NoReturn:
            try:
                await super().run(task_status=task_status)
            finally:
                # As a call of the disk in a thread.
                with trio.CancelScope(shield=True):
                    await ended.wait()

    of_slave = Slow()
    await nursery.start(OnShift(role.follows, [of_slave]).run)
    with trio.CancelScope() as scope:
        nursery.start_soon(call_once_all_wait, scope.cancel)
        await role.stop_following()
    role.follow_again()
    nursery.start_soon(call_once_all_wait, ended.set)
    with trio.fail_after(5):
        await role.stop_following()
    assert not of_slave.running
    role.follow_again()
    await wait_all_tasks_blocked()
    assert of_slave.running


async def test_an_end_does_not_wait_for_what_has_stopped_with_the_broker() -> None:
    role = Role(slave=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(OnShift(role.works, [Runs()]).run)
        nursery.cancel_scope.cancel()
    with trio.fail_after(5):
        await role.stop_working()
        await role.stop_working()


async def call_once_all_wait(call: Callable[[], object]) -> None:
    await wait_all_tasks_blocked()
    call()


async def test_a_slave_that_does_not_become_the_master_follows_again(
    nursery: trio.Nursery,
) -> None:
    role, of_slave = Role(slave=True), Runs()
    await nursery.start(OnShift(role.follows, [of_slave]).run)
    for _ in range(2):
        await role.stop_following()
        assert not of_slave.running
        role.follow_again()
        await wait_all_tasks_blocked()
        assert of_slave.running


async def test_a_master_whose_time_is_over_serves_nobody() -> None:
    role = Role(slave=False)
    assert role.serves
    role.fenced = lambda: True
    assert (role.is_slave, role.serves) == (False, False)
    assert not Role(slave=True).serves
