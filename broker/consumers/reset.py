"""INVOKE_BROKER_TO_RESET_OFFSET: reset the offsets of a consumer group.

The broker stores the new offsets, durably, and the next pull of each queue is answered with it, so
it works for every client and for groups without members. With `useServerSideResetOffset: false` the
clients are notified instead, as in 4.9. A topic may have thousands of queues, whose offsets are
looked up on disk: they are reset in short turns. Source: admin §5, semantics §3.4
(AdminBrokerProcessor, Broker2Client).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.consumers.consumer_offsets import NO_OFFSET
from aerobee.broker.errors import Refusal, TopicNotExist
from aerobee.broker.topics.topic_processor import when_saved
from aerobee.remoting.server.turns import Turns, in_slices
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue import (
    MessageQueue,
    offset_row,
    offset_row_for_cpp,
    offset_table,
    offset_table_for_cpp,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import offset as headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command

OLDEST_CLIENT: Final = 28
"""V3_0_7_SNAPSHOT, the first version whose clients can be notified."""
NO_MASTER: Final = "Can not reset offset in slave broker"

log = structlog.stdlib.get_logger(__name__)


class ResetProcessor:
    """Code 222."""

    def __init__(self, core: Core, topics: TopicTable, tables: ConsumerTables) -> None:
        self.config = core.config
        self.role = core.role
        self.store = core.store
        self.clock = core.clock
        self.topics = topics
        self.groups = tables.groups
        self.offsets = tables.offsets
        self.clients = tables.clients
        self.tables = core.tables

    def reset(
        self, header: headers.ResetOffset, command: Command, connection: Caller
    ) -> Awaitable[Answer]:
        """Reset the group in each queue; offsets by time may have to be looked up on disk."""
        topic = self.topics.get(header.topic)
        if topic is None:
            raise TopicNotExist(header.topic)
        if not self.config.broker.use_server_side_reset_offset:
            return self._tell_clients(header, topic)
        self.groups.existing(header.group)
        if header.queue_id < 0:
            return self._reset_all(header, topic)
        return self._reset_one(header)

    # ── By the broker ──

    async def _reset_one(self, header: headers.ResetOffset) -> Answer:
        at = await self.store.complete(partial(self._target, header, header.queue_id))
        self._check_there(header)
        self.offsets.reset(header.group, header.topic, header.queue_id, at, self.clock.now_ms())
        return await self._saved(header, {header.queue_id: at})

    async def _saved(self, header: headers.ResetOffset, targets: dict[int, int]) -> Answer:
        """The answer, once no kill takes the reset back. Raises: Refusal."""
        self._log(header, len(targets))
        await when_saved(self.tables, "reset")
        return Answer(body=offset_table(await self._rows(header.topic, targets)))

    async def _reset_all(self, header: headers.ResetOffset, topic: TopicConfig) -> Answer:
        """Nothing changes before all targets are known."""
        targets = await self._targets(header, topic.read_queue_nums)
        now_ms = self.clock.now_ms()

        def reset() -> Iterator[None]:
            for queue_id, at in targets.items():
                self._check_there(header)
                # The topic may have been made anew.
                end = self.store.max_offset(header.topic, queue_id)
                targets[queue_id] = min(at, end)
                self.offsets.reset(header.group, header.topic, queue_id, targets[queue_id], now_ms)
                yield

        await in_slices(reset())
        return await self._saved(header, targets)

    def _check_there(self, header: headers.ResetOffset) -> None:
        """Topic and group were not deleted while this waited, and this is still the master: another
        one has copied its offsets by now. Raises: Refusal.
        """
        if not self.role.serves:
            raise Refusal(ResponseCode.SYSTEM_ERROR, NO_MASTER)
        if self.topics.get(header.topic) is None:
            raise TopicNotExist(header.topic)
        self.groups.existing(header.group)

    async def _targets(self, header: headers.ResetOffset, queues: int) -> dict[int, int]:
        """The offsets by time of so many queues: queue by queue, each of which may be on disk."""
        targets, turns = {}, Turns()
        for queue_id in range(queues):
            targets[queue_id] = await self.store.complete(partial(self._by_time, header, queue_id))
            await turns.give_way()
        return targets

    def _log(self, header: headers.ResetOffset, queues: int) -> None:
        log.info(
            "consumer_offset.reset",
            topic=header.topic,
            group=header.group,
            queues=queues,
            timestamp=header.timestamp,
        )

    def _target(self, header: headers.ResetOffset, queue_id: int) -> int:
        """The requested offset, if the queue has it; else the one by time."""
        if header.offset is None or header.offset == NO_OFFSET:
            return self._by_time(header, queue_id)
        first = self.store.min_offset(header.topic, queue_id)
        end = self.store.max_offset(header.topic, queue_id)
        if not first <= header.offset <= end + 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"offset {header.offset} is outside of queue {queue_id} of {header.topic}: "
                f"it holds {first} to {end}",
            )
        return header.offset

    def _by_time(self, header: headers.ResetOffset, queue_id: int) -> int:
        if header.timestamp < 0:
            return self.store.max_offset(header.topic, queue_id)
        return max(0, self.store.offset_by_time(header.topic, queue_id, header.timestamp))

    # ── By the clients ──

    async def _tell_clients(self, header: headers.ResetOffset, topic: TopicConfig) -> Answer:
        targets = await self._targets(header, topic.write_queue_nums)
        for queue_id, target in targets.items():
            now_at = self.offsets.query(header.group, header.topic, queue_id)
            if now_at == NO_OFFSET:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist"
                )
            targets[queue_id] = target if header.is_force or target < now_at else now_at
        group = self.clients.group(header.group)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        for client in group.clients.values():
            if client.version < OLDEST_CLIENT:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client {client.client_id} does not support this feature: it is too old",
                )
        reset = headers.ResetOffsetInClient(
            topic=header.topic, group=header.group, timestamp=header.timestamp
        )
        bodies: dict[bool, bytes] = {}
        turns = Turns()
        for client in list(group.clients.values()):
            cpp = client.language == "CPP"
            if cpp not in bodies:
                rows = await self._rows(header.topic, targets, cpp=cpp)
                bodies[cpp] = offset_table_for_cpp(rows) if cpp else offset_table(rows)
            client.connection.notify(reset.code, reset, bodies[cpp])
            await turns.give_way()
        return Answer(body=offset_table(await self._rows(header.topic, targets)))

    async def _rows(self, topic: str, targets: dict[int, int], *, cpp: bool = False) -> list[bytes]:
        """The rows of an offset table; `cpp`: as the C++ client reads it."""
        row = offset_row_for_cpp if cpp else offset_row
        return await in_slices(
            row(self._queue(topic, queue_id), at) for queue_id, at in targets.items()
        )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        broker = self.config.broker.broker_name
        return MessageQueue(broker_name=broker, queue_id=queue_id, topic=topic)
