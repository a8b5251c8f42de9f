"""What a broker remembers: its tables, the files they live in, and what makes both agree.

Some tables change by administration and are saved when asked; some move with every message and are
saved by the clock. Those that say how far something was copied within the log reach the disk only
after what they speak of; so do consumer offsets where messages were popped.
Source: semantics §3.1, §17.4; store format §1.7.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.assignment.request_modes import RequestModeTable
from aerobee.broker.consumers.clients import ClientTable
from aerobee.broker.consumers.compensation import CompensationTable
from aerobee.broker.consumers.consumer_filters import ConsumerFilterTable
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.consumers.queue_locks import QueueLockTable
from aerobee.broker.delay.delay_levels import SCHEDULE_TOPIC
from aerobee.broker.delay.delay_offsets import DelayOffsetTable
from aerobee.broker.namesrv.kv_config import KvConfigTable
from aerobee.broker.namesrv.route_table import RouteTable
from aerobee.broker.pop.pop_orders import PopOrderTable
from aerobee.broker.saved.json_file import JsonFile
from aerobee.broker.saved.save import LargeTable, Periodic, SavedTable, Saver, Table
from aerobee.broker.timers.timing_counts import TimingCounts
from aerobee.broker.topics.topics import TopicTable
from aerobee.broker.transactions.open_transactions import Transactions
from aerobee.store.errors import StoreForeign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.remoting.wire.bodies.queue_lock import MessageQueue
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import Recovery

__all__ = ["State"]

COUNTS_S: Final = 10.0
"""Period in which counts are saved that only another broker reads."""
ORDERS_S: Final = 10.0
"""Period in which it is saved what is out with orderly pops."""
FILTERS_S: Final = 10.0
"""Period in which the SQL filters of consumer groups are saved, if they changed."""

log = structlog.stdlib.get_logger("aerobee.broker")


class State:
    """Every table of a broker. `topics_changed` is told the names that must be registered."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        topics_changed: Callable[[Iterable[str]], None],
        durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._topics_changed = topics_changed
        self._durable = durable
        self._folder = Path(config.store.store_path_root_dir).expanduser() / "config"
        now_ms = clock.now_ms()
        broker = config.broker
        self.topics = TopicTable(broker, now_ms=now_ms, on_change=self._save_topics)
        self.groups = GroupTable(broker, now_ms=now_ms, on_change=self._save_groups)
        self.offsets = ConsumerOffsetTable(version_step=broker.consumer_offset_update_version_step)
        self.delays = DelayOffsetTable(
            version_step=broker.delay_offset_update_version_step, now_ms=now_ms
        )
        self.clients = ClientTable()
        self.filters = ConsumerFilterTable()
        self.compensation = CompensationTable()
        self.locks: QueueLockTable[MessageQueue] = QueueLockTable()
        self.routes = RouteTable(now_ms=now_ms)
        self.transactions = Transactions()
        self.timing = TimingCounts()
        self.orders = PopOrderTable()
        self.request_modes = RequestModeTable(on_change=self._save_modes)
        self._durable_pops = 0
        self.kv = KvConfigTable(on_change=self._save_kv)
        self._make_files(config)

    def _make_files(self, config: BrokerConfig) -> None:
        broker = config.broker
        kv_path = config.namesrv.kv_config_path
        self.topic_file = self._saved(self.topics, "topics.json")
        self.group_file = self._saved(self.groups, "subscriptionGroup.json")
        self.offset_file = self._saved(
            self.offsets,
            "consumerOffset.json",
            changes=lambda: self.offsets.changes,
            relies_on=self._pops_durable,
        )
        self.order_file = self._saved(
            self.orders, "consumerOrderInfo.json", changes=lambda: self.orders.changes
        )
        self.mode_file = self._saved(self.request_modes, "messageRequestMode.json")
        self.kv_file = self._saved(self.kv, kv_path or "kvConfig.json")
        self.delay_file = self._saved(
            self.delays,
            "delayOffset.json",
            changes=lambda: self.delays.changes,
            relies_on=self._durable,
        )
        self.filter_file = self._saved(
            self.filters, "consumerFilter.json", changes=lambda: self.filters.changes
        )
        counted = self._saved(
            self.transactions, "transactionMetrics", changes=lambda: self.transactions.changes
        )
        self.timing_file = timing = self._saved(
            self.timing, "timermetrics", changes=lambda: self.timing.changes
        )
        self.periodic = [
            Periodic(self.offset_file, broker.flush_consumer_offset_interval_ms / 1000),
            Periodic(self.delay_file, config.store.flush_delay_offset_interval_ms / 1000),
            Periodic(counted, COUNTS_S),
            Periodic(self.order_file, ORDERS_S),
            Periodic(timing, COUNTS_S),
            Periodic(self.filter_file, FILTERS_S),
        ]
        self.saver = Saver(
            (self.topic_file, self.group_file, self.kv_file, self.mode_file),
            periodic=self.periodic,
        )

    # -- files -----------------------------------------------------------------------------------

    def _saved(
        self,
        table: Table | LargeTable,
        name: str,
        *,
        changes: Callable[[], int] | None = None,
        relies_on: Callable[[], Awaitable[None]] | None = None,
    ) -> SavedTable:
        file = JsonFile(self._folder / name, self._disk, self._clock)
        return SavedTable(table, file, changes=changes, relies_on=relies_on)

    async def _pops_durable(self) -> None:
        """What offsets of pops speak of is on disk. Raises: OSError."""
        popped = self.offsets.popped
        if popped != self._durable_pops:
            await self._durable()
            self._durable_pops = popped

    def _save_topics(self, names: Iterable[str]) -> None:
        self.topic_file.request()
        self._topics_changed(names)

    def _save_groups(self, names: Iterable[str]) -> None:
        self.group_file.request()

    def _save_modes(self) -> None:
        self.mode_file.request()

    def _save_kv(self) -> None:
        self.kv_file.request()

    # -- the start -------------------------------------------------------------------------------

    def load(self) -> None:
        """Read every table. Raises: TableDamaged, StoreForeign, OSError."""
        self.offset_file.file.load(self.offsets.load)
        self.delay_file.file.load(self.delays.load)
        self.timing_file.file.load(self.timing.load)
        self.order_file.file.load(self.orders.load)
        self.mode_file.file.load(self.request_modes.load)
        self.kv_file.file.load(self.kv.load)
        now_ms = self._clock.now_ms()
        self.filter_file.file.load(lambda document: self.filters.load(document, now_ms))
        for saved, load in (
            (self.topic_file, self.topics.load),
            (self.group_file, self.groups.load),
        ):
            left_out = saved.file.load(load)
            if left_out:
                log.warning("table.names_left_out", path=str(saved.file.path), names=left_out)
        self._refuse_queue_types()

    def _refuse_queue_types(self) -> None:
        path = self.topic_file.file.path
        batches = self.topics.with_attribute("queue.type", "BatchCQ")
        if batches:
            raise StoreForeign(
                f"{path}: topic {batches[0]} has queue.type=BatchCQ, whose inner batches are not "
                "served here: run this directory with the broker that wrote it"
            )
        for topic in self.topics.with_attribute("cleanup.policy", "COMPACTION"):
            log.warning("topic.not_compacted", topic=topic)

    def reconcile(self, store: MessageStore, recovery: Recovery) -> None:
        """The log is the truth: no offset beyond its queue, no queue without its topic."""
        for cut in self.offsets.clamp(store.max_offset):
            log.warning("consumer_offset.clamped", **cut._asdict())
        for moved in self.delays.clamp(
            lambda level: store.min_offset(SCHEDULE_TOPIC, level - 1),
            lambda level: store.max_offset(SCHEDULE_TOPIC, level - 1),
        ):
            log.warning("schedule.moved", **moved._asdict())
        if recovery.clean:
            return
        # A crash between making a topic and saving it leaves its first messages in the log.
        queues: dict[str, int] = {}
        for topic, queue_id in store.queues.table:
            queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        now_ms = self._clock.now_ms()
        for topic, count in queues.items():
            if self.topics.adopt(topic, count, now_ms):
                log.warning("topic.adopted", topic=topic, queues=count)
