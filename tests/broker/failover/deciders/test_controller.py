"""Changes of the sync set whose answer is lost, at controllers that are told what to answer.

The real ones are in `tests/interop/test_controller.py`; they cannot be told to be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from aerobee.broker.failover.decider import ChangeRefused, DeciderSilent, Sight
from aerobee.broker.failover.deciders.controller import Controller, LogFigures
from aerobee.broker.failover.deciders.controller_identity import Member
from aerobee.broker.failover.record import with_set
from aerobee.remoting.wire.bodies.controller import SyncStateSet
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import controller

if TYPE_CHECKING:
    from trio.testing import MockClock

    from aerobee.broker.failover.record import Record
    from aerobee.remoting.wire.header import Header

pytestmark = pytest.mark.trio

NOT_USED: Any = None
LEASE_S = 60.0


class Controllers:
    """They know members 1, the master, and 2, and give no answer to changes of the set."""

    def __init__(self) -> None:
        self.epoch, self.set_epoch = 3, 5
        self.hears_member_2 = True
        self.asked: list[bytes] = []

    async def call(self, header: Header, body: bytes = b"") -> Command:
        await trio.lowlevel.checkpoint()
        if isinstance(header, controller.AlterSyncStateSet):
            self.asked.append(body)
            raise DeciderSilent("too late")
        if isinstance(header, controller.GetSyncStateData):
            both = [
                {"brokerName": "b", "brokerId": number, "alive": alive}
                for number, alive in ((1, True), (2, self.hears_member_2))
            ]
            return answer({}, {"replicasInfoTable": {"b": {"inSyncReplicas": both}}})
        assert isinstance(header, controller.GetReplicaInfo)
        fields = {"masterBrokerId": "1", "masterAddress": "h:1", "masterEpoch": str(self.epoch)}
        members = SyncStateSet(sync_state_set=[1], sync_state_set_epoch=self.set_epoch)
        return answer(fields, members)


def answer(fields: dict[str, str], body: Any) -> Command:
    return Command(code=0, ext=fields, body=msgspec.json.encode(body))


async def led(controllers: Any) -> tuple[Controller, Sight, Record]:
    """Member 1 leads, and has asked for member 2 to join."""
    decider = Controller(
        controllers, NOT_USED, Member("c", "b", "h:1"), 1, LEASE_S, lambda: LogFigures(2, 0, 0)
    )
    sight = await decider.take(await decider.look(None, 0), NOT_USED)
    assert sight.record is not None
    wanted = with_set(sight.record, {1, 2})
    with pytest.raises(DeciderSilent):
        await decider.change(sight, wanted, sight.record.lease)
    assert len(controllers.asked) == 1
    return decider, sight, wanted


async def test_a_change_that_may_still_come_is_not_given_up_as_its_member_dies() -> None:
    controllers = Controllers()
    decider, sight, wanted = await led(controllers)
    controllers.hears_member_2 = False
    for _ in range(2):
        # Given up, messages would be acknowledged without member 2, which is in the set then.
        with pytest.raises(DeciderSilent, match="hear no member"):
            await decider.change(sight, wanted, wanted.lease)
    controllers.hears_member_2 = True
    with pytest.raises(DeciderSilent, match="too late"):
        await decider.change(sight, wanted, wanted.lease)
    assert controllers.asked[0] == controllers.asked[-1]


async def test_a_master_whose_disk_hangs_before_it_leads_is_taken_for_dead(
    mock_clock: MockClock,
) -> None:
    decider, _, _ = await led(Controllers())
    assert not decider.silent
    mock_clock.jump(LEASE_S)
    assert decider.silent, "its epoch was not saved in all this time"
    await decider.take(await decider.look(None, 0), NOT_USED)
    assert not decider.silent


async def test_a_change_of_an_earlier_epoch_comes_no_more() -> None:
    controllers = Controllers()
    decider, _, _ = await led(controllers)
    controllers.epoch, controllers.set_epoch = 4, 6
    controllers.hears_member_2 = False
    sight = await decider.take(await decider.look(None, 0), NOT_USED)
    assert sight.record is not None
    with pytest.raises(ChangeRefused, match="hear no member"):
        await decider.change(sight, with_set(sight.record, {1, 2}), sight.record.lease)
