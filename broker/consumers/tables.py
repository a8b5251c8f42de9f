"""The tables about consumers: groups, offsets, clients, filters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.broker.consumers.clients import ClientTable
from aerobee.broker.consumers.compensation import CompensationTable
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.consumers.queue_locks import QueueLockTable
from aerobee.broker.filters.consumer_filters import ConsumerFilterTable

if TYPE_CHECKING:
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.remoting.wire.bodies.queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ConsumerTables:
    """All of them; producers are in `clients` as well."""

    groups: GroupTable
    offsets: ConsumerOffsetTable = field(default_factory=ConsumerOffsetTable)
    clients: ClientTable = field(default_factory=ClientTable)
    locks: QueueLockTable[MessageQueue] = field(default_factory=QueueLockTable)
    filters: ConsumerFilterTable = field(default_factory=ConsumerFilterTable)
    compensation: CompensationTable = field(default_factory=CompensationTable)
