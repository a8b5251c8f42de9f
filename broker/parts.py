"""Every part of a broker, built and wired, nothing started: tables, store, processors, reactor.

Reading this file top to bottom shows who knows whom. `controller` owns their life.
"""

from __future__ import annotations

import random
import socket
from functools import partial
from os import getpid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from broker import answers
from broker.json_file import JsonFile
from broker.pools import make_pools
from broker.processors.cleanup import CleanupProcessor
from broker.processors.client import ClientProcessor
from broker.processors.offset import OffsetProcessor
from broker.processors.pull import Pull
from broker.processors.query import QueryProcessor
from broker.processors.route import RouteProcessor
from broker.processors.send import Send
from broker.processors.topic import TopicProcessor
from broker.routes import Processors
from broker.services.hold import Hold
from broker.services.name_server_link import connected
from broker.services.registration import Identity, Registration
from broker.services.save import SavedTable, Saver, Table
from broker.services.statistics import LoopTicker
from broker.services.unread import UnreadReport
from broker.stats import BrokerStats
from broker.tables.advertised import Advertised, parse_rules
from broker.tables.clients import ClientTable
from broker.tables.consumer_offsets import ConsumerOffsetTable
from broker.tables.groups import GroupTable
from broker.tables.kv_config import KvConfigTable
from broker.tables.queue_locks import QueueLockTable
from broker.tables.routes import MASTER_ID, RouteTable
from broker.tables.topics import TopicTable
from broker.uniq_ids import UniqIds
from remoting.server.connection import packed_host
from remoting.server.reactor import Reactor
from remoting.server.selector import Limits
from store.errors import StoreForeign
from store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.config import BrokerConfig
    from remoting.server.connection import Connection
    from remoting.wire.bodies.queue_lock import MessageQueue
    from store.files.disk import Clock, Disk
    from store.results import Recovery

__all__ = ["HELD_PULLS_MAX", "Parts"]

log = structlog.stdlib.get_logger("aerobee.broker")

HELD_PULLS_MAX: Final = 100_000
"""Pulls held at once; beyond it a pull that finds nothing is answered at once."""


class Parts:
    """A broker taken apart. Attributes are its parts, in the order in which they are made."""

    def __init__(self, config: BrokerConfig, *, disk: Disk, clock: Clock) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.stats = BrokerStats()
        self._make_tables()
        self._make_files()
        self.registration = self._make_registration()
        self.store = MessageStore(
            config.store, disk=disk, clock=clock, topics_known=self._topic_is_known
        )
        self.hold = Hold(self.store.max_offset, HELD_PULLS_MAX)
        self.store.on_arrival = self.hold.arrived
        self.store.space.queues.on_deleted = UnreadReport(self.offsets, self.stats).deleted
        self.processors = self._make_processors()
        self.reactor = Reactor(
            pools=make_pools(config.remoting),
            limits=self._limits(),
            selectors=config.remoting.server_selector_threads,
            refusals=answers.refusal,
            after_round=self.after_round,
            on_connect=self._connected,
        )
        self.store.after_flush = self.after_flush
        self.ticker = LoopTicker(self.stats.loop, clock)

    # -- what the reactor and the store call -----------------------------------------------------

    def after_round(self) -> None:
        """The messages of a round reach their queues; held pulls that waited for them run."""
        self.store.dispatch()
        self.hold.wake()

    def after_flush(self) -> None:
        """A sync answered its producers, and showed more messages to consumers."""
        self.hold.wake()
        self.reactor.flush()

    def _connected(self, connection: Connection) -> None:
        connection.on_close.append(self._closed)

    def _closed(self, connection: Connection, reason: str) -> None:
        self.processors.client.connection_closed(connection)
        self.processors.route.connection_closed(connection)

    # -- making ----------------------------------------------------------------------------------

    def _make_tables(self) -> None:
        now_ms = self.clock.now_ms()
        broker = self.config.broker
        self.topics = TopicTable(broker, now_ms=now_ms, on_change=self._topics_changed)
        self.groups = GroupTable(broker, now_ms=now_ms, on_change=self._groups_changed)
        self.offsets = ConsumerOffsetTable(version_step=broker.consumer_offset_update_version_step)
        self.clients = ClientTable()
        self.locks: QueueLockTable[MessageQueue] = QueueLockTable()
        self.routes = RouteTable(now_ms=now_ms)
        self.kv = KvConfigTable(on_change=self._kv_changed)

    def _make_files(self) -> None:
        folder = Path(self.config.store.store_path_root_dir).expanduser() / "config"
        kv_path = self.config.namesrv.kv_config_path
        self.topic_file = self._saved(self.topics, folder / "topics.json")
        self.group_file = self._saved(self.groups, folder / "subscriptionGroup.json")
        self.offset_file = self._saved(
            self.offsets, folder / "consumerOffset.json", lambda: self.offsets.changes
        )
        self.kv_file = self._saved(self.kv, Path(kv_path or folder / "kvConfig.json"))
        self.saver = Saver(
            (self.topic_file, self.group_file, self.kv_file),
            periodic=self.offset_file,
            period_s=self.config.broker.flush_consumer_offset_interval_ms / 1000,
        )

    def _saved(
        self, table: Table, path: Path, changes: Callable[[], int] | None = None
    ) -> SavedTable:
        return SavedTable(table, JsonFile(path, self.disk, self.clock), changes=changes)

    def _make_processors(self) -> Processors:
        config, clock = self.config, self.clock
        broker = config.broker
        host = self.store_host()
        return Processors(
            send=Send(
                config=config,
                store=self.store,
                topic_file=self.topic_file,
                stats=self.stats,
                store_host=host,
                random_queue=random.randrange,
                new_unique_key=UniqIds(host[:-4], getpid(), random.getrandbits(32), clock),
                topics=self.topics,
                groups=self.groups,
                clock=clock,
            ),
            pull=Pull(
                config=config,
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                clients=self.clients,
                offsets=self.offsets,
                hold=self.hold,
                stats=self.stats,
                clock=clock,
            ),
            query=QueryProcessor(store=self.store),
            offset=OffsetProcessor(
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                store=self.store,
                clock=clock,
            ),
            client=ClientProcessor(
                clients=self.clients,
                groups=self.groups,
                topics=self.topics,
                locks=self.locks,
                clock=clock,
                notify_enabled=lambda: broker.notify_consumer_ids_changed_enable,
                reject_pull_consumers=lambda: broker.reject_pull_consumer_enable,
            ),
            topic=TopicProcessor(topics=self.topics, saved=self.topic_file, clock=clock),
            cleanup=CleanupProcessor(
                store=self.store, topics=self.topics, offsets=self.offsets, clock=clock
            ),
            route=RouteProcessor(
                routes=self.routes,
                kv=self.kv,
                advertised=self._advertised(),
                settings=config.namesrv,
                clock=clock,
            ),
        )

    def _make_registration(self) -> Registration:
        broker, remoting = self.config.broker, self.config.remoting
        ha_port = self.config.replication.ha_listen_port or remoting.listen_port + 1
        return Registration(
            identity=Identity(
                cluster=broker.broker_cluster_name,
                broker=broker.broker_name,
                broker_id=MASTER_ID,
                address=self.own_address(),
                ha_address=f"{broker.broker_ip2}:{ha_port}",
                permission=broker.broker_permission,
            ),
            topics=self.topics,
            clock=self.clock,
            routes=self.routes if self.config.namesrv.embedded_namesrv else None,
            name_servers=[address for address in broker.namesrv_addr.split(";") if address],
            connect=partial(connected, connect_timeout_s=remoting.connect_timeout_ms / 1000),
            period_ms=broker.register_name_server_period_ms,
            timeout_ms=broker.register_broker_timeout_ms,
            force=broker.force_register,
        )

    def store_host(self) -> bytes:
        """Our published address as records carry it: packed, and the port as i32."""
        port = self.config.remoting.listen_port
        return packed_host(_resolved(self.config.broker.broker_ip1, port))

    def _advertised(self) -> Advertised:
        broker = self.config.broker
        port = self.config.remoting.listen_port
        explicit = broker.broker_ip1 if "brokerIP1" in self.config.sources else None
        return Advertised(
            listen_port=port,
            host=broker.advertised_host or explicit,
            rules=parse_rules(broker.advertised, port),
        )

    def _limits(self) -> Limits:
        remoting = self.config.remoting
        return Limits(
            max_frame_bytes=remoting.max_frame_bytes,
            max_header_bytes=remoting.max_header_bytes,
            high_water_bytes=remoting.high_water_bytes,
            low_water_bytes=remoting.low_water_bytes,
            idle_s=remoting.server_channel_max_idle_time_s,
            stall_s=remoting.write_stall_timeout_ms / 1000,
        )

    # -- changes ---------------------------------------------------------------------------------

    def _topic_is_known(self, topic: str) -> bool:
        return self.topics.get(topic) is not None

    def _topics_changed(self, names: Iterable[str]) -> None:
        self.topic_file.request()
        self.registration.topics_changed(names)

    def _groups_changed(self, names: Iterable[str]) -> None:
        self.group_file.request()

    def _kv_changed(self) -> None:
        self.kv_file.request()

    def own_address(self) -> str:
        """The address that other name servers, and records, give for us."""
        return f"{self.config.broker.broker_ip1}:{self.config.remoting.listen_port}"

    # -- the start -------------------------------------------------------------------------------

    def load(self) -> Recovery:
        """Lock the directory, read the tables, recover the store, make the tables agree with it.

        The tables come first: recovery asks them which topics still exist.
        Raises: StoreRefused, TableDamaged, OSError; the directory is free again then.
        """
        self.store.lock()
        try:
            self._load_tables()
            self._refuse_queue_types()
        except BaseException:
            self.store.unlock()
            raise
        recovery = self.store.load()
        self._reconcile(recovery)
        return recovery

    def _load_tables(self) -> None:
        self.offset_file.file.load(self.offsets.load)
        self.kv_file.file.load(self.kv.load)
        for saved, load in (
            (self.topic_file, self.topics.load),
            (self.group_file, self.groups.load),
        ):
            left_out = saved.file.load(load)
            if left_out:
                log.warning("table.names_left_out", path=str(saved.file.path), names=left_out)

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

    def _reconcile(self, recovery: Recovery) -> None:
        """The log is the truth: no offset beyond its queue, no queue without its topic."""
        for cut in self.offsets.clamp(self.store.max_offset):
            log.warning("consumer_offset.clamped", **cut._asdict())
        if recovery.clean:
            return
        # A crash between making a topic and saving it leaves its first messages in the log.
        queues: dict[str, int] = {}
        for topic, queue_id in self.store.queues.table:
            queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        now_ms = self.clock.now_ms()
        for topic, count in queues.items():
            if self.topics.adopt(topic, count, now_ms):
                log.warning("topic.adopted", topic=topic, queues=count)


def _resolved(host: str, port: int) -> tuple[str, int]:
    """Host name or address → address, IPv4 if there is one. Raises: OSError naming the key."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(error.errno, f"brokerIP1 is {host}: {error.strerror}") from error
    preferred = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(preferred[0][4][0]), port
