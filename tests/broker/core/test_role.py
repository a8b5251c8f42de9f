"""A broker that starts as a slave, and what runs in it before and after it becomes the master."""

from __future__ import annotations

from typing import NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.broker.core.role import OnceMaster, Role, WhileSlave

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
    await nursery.start(OnceMaster(role, [of_master]).run)
    await nursery.start(WhileSlave(role, [of_slave]).run)
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
    await role.until_master()
    assert not role.is_slave


async def test_a_slave_that_does_not_become_the_master_follows_again(
    nursery: trio.Nursery,
) -> None:
    role, of_slave = Role(slave=True), Runs()
    await nursery.start(WhileSlave(role, [of_slave]).run)
    for _ in range(2):
        await role.stop_following()
        assert not of_slave.running
        role.follow_again()
        await wait_all_tasks_blocked()
        assert of_slave.running
