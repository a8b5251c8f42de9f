"""Delay levels: messages that wait for one of a few times, each level in its own queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from aerobee.broker.core.feature import Feature
from aerobee.broker.delay.delay_levels import delay_hook
from aerobee.broker.delay.delay_offsets import DelayOffsetTable
from aerobee.broker.delay.schedule import Schedule
from aerobee.broker.saved.save import Periodic
from aerobee.remoting.server.routes import Route, finished
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.headers.offset import GetAllDelayOffset
from aerobee.store.format.system_names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Generator

    from aerobee.broker.core.core import Core
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.store.results import Recovery

log = structlog.stdlib.get_logger(__name__)


class DelayFeature(Feature):
    """The hook that redirects messages with a level, and the schedule that delivers them."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        config = core.config
        self.offsets = DelayOffsetTable(
            version_step=config.broker.delay_offset_update_version_step,
            now_ms=core.clock.now_ms(),
        )
        # The offset of a level must not reach the disk before its copies.
        self.file = core.tables.changing(
            self.offsets, "delayOffset.json", relies_on=core.puts.durable
        )
        self.periodic = (Periodic(self.file, config.store.flush_delay_offset_interval_ms / 1000),)
        self.put_hooks = (delay_hook(core.store.levels),)
        self.schedule = Schedule(core, self.offsets)
        self.master_services = (self.schedule,)
        self.routes = (Route(GetAllDelayOffset, self.all_offsets, "admin"),)

    def load(self) -> None:
        """Load the offsets of the levels."""
        self.file.load(self.offsets.load)

    def recovered(self, recovery: Recovery) -> None:
        """Clamp the offset of each level to its queue."""
        finished(self.copy_ended())

    def copy_ended(self) -> Generator[None, None, None]:
        """Clamp the offset of each level to its queue, which ends where the copy did."""
        for moved in self.offsets.clamp(
            lambda level: self._store.min_offset(SCHEDULE_TOPIC, level - 1),
            lambda level: self._store.max_offset(SCHEDULE_TOPIC, level - 1),
        ):
            log.warning("schedule.moved", **moved._asdict())
        yield

    def all_offsets(
        self, header: GetAllDelayOffset, command: Command, connection: Caller
    ) -> Answer:
        """GET_ALL_DELAY_OFFSET: the current content of `delayOffset.json`."""
        return Answer(body=msgspec.json.encode(self.offsets.document()))
