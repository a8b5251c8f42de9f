"""Stops groups with a large lag: reading old messages from disk slows down everybody.

Only with `disableConsumeIfConsumerReadSlowly`. The lag is measured in bytes of the log after the
next message of a group, in the queue where that is most; only groups that have consumed something
since the last check count, as in RocketMQ, which sees a group only when it pulls. An administrator
enables a group again. Source: semantics §17.3 (protectBroker).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec
import structlog
import trio

if TYPE_CHECKING:
    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.store.clock import Clock
    from aerobee.store.message_store import MessageStore

PERIOD_S: Final = 180.0

log = structlog.stdlib.get_logger(__name__)


class Protection:
    """The service."""

    def __init__(
        self,
        options: BrokerOptions,
        *,
        stats: BrokerStats,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._options = options
        self._stats = stats
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._clock = clock
        self._taken: dict[tuple[str, str], int] = {}

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Check every three minutes until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(PERIOD_S)
            if self._options.disable_consume_if_consumer_read_slowly:
                try:
                    await self.look()
                except OSError as error:
                    log.warning("group.not_measured", error=str(error))

    async def look(self) -> None:
        """Stop every group that consumes and lags too far."""
        before = self._taken
        self._taken = {pair: counts.messages_out for pair, counts in self._stats.groups_out.items()}
        limit = self._options.consumer_fallbehind_threshold_bytes
        for (group, topic), messages in self._taken.items():
            config = self._groups.get(group)
            if (
                config is None
                or not config.consume_enable
                or before.get((group, topic), 0) == messages
            ):
                continue
            behind = await self.behind_bytes(group, topic)
            # As it is now: it may have been changed, or deleted, while its queues were read.
            config = self._groups.get(group)
            if behind > limit and config is not None and config.consume_enable:
                disabled = msgspec.structs.replace(config, consume_enable=False)
                self._groups.update(disabled, self._clock.now_ms())
                log.warning("group.disabled", group=group, topic=topic, behind_bytes=behind)

    async def behind_bytes(self, group: str, topic: str) -> int:
        """The lag of a group in bytes of the log, in the queue where it is most."""
        store = self._store
        most = 0
        for queue_id, at in list(self._offsets.queues(group, topic).items()):
            queue = store.queues.table.get((topic, queue_id))
            if queue is None or at < 0:
                continue
            unit = await store.complete(partial(queue.unit, at, store.reader.cold.units))
            if unit is not None:
                physical_offset, *_ = unit
                most = max(most, store.commit_log.max_offset - physical_offset)
        return most
