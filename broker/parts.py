"""Every part of a broker, built and wired, nothing started: tables, store, processors, reactor.

Reading this file top to bottom shows who knows whom. `controller` owns their life.
"""

from __future__ import annotations

import random
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from aerobee.broker import answers
from aerobee.broker.admin.runtime_info import RuntimeInfo
from aerobee.broker.consumers.member_changes import MemberChanges
from aerobee.broker.core.pace import Pace
from aerobee.broker.core.puts import Puts
from aerobee.broker.core.waiting_places import PlaceLimits
from aerobee.broker.dedupe.dedupe import Dedupe
from aerobee.broker.dedupe.dedupe_settings import parse as parse_dedupe
from aerobee.broker.delay.delay_levels import delay_hook
from aerobee.broker.delay.schedule import Schedule
from aerobee.broker.metrics.sampling import Sampling
from aerobee.broker.metrics.stats import BrokerStats
from aerobee.broker.namesrv.name_server_link import connected
from aerobee.broker.namesrv.registration import Identity, Registration
from aerobee.broker.namesrv.route_table import MASTER_ID
from aerobee.broker.pools.pool_watch import PoolWatch
from aerobee.broker.pools.pools import make_pools
from aerobee.broker.pools.slow_rounds import SlowRounds
from aerobee.broker.pop.pop_hold import WAKE_POPS, PopHold, PopLimits
from aerobee.broker.pop.revive import Revive, Timing
from aerobee.broker.pop.revive_log import ReviveLog
from aerobee.broker.process.host import descriptor_limit, other_name_servers
from aerobee.broker.process.loop_ticker import LoopTicker
from aerobee.broker.pull.access import ReadAccess
from aerobee.broker.pull.hold import Hold
from aerobee.broker.pull.protection import Protection
from aerobee.broker.pull.unread import UnreadReport
from aerobee.broker.send.dead_letters import DeadLetters
from aerobee.broker.send.destinations import Destinations
from aerobee.broker.state import State
from aerobee.broker.timers.timer_properties import TimerHook
from aerobee.broker.timers.timers import Timers
from aerobee.broker.transactions.check_service import HalfMessages
from aerobee.broker.wiring import make_processors
from aerobee.remoting.server.connection import packed_host
from aerobee.remoting.server.reactor import Reactor
from aerobee.remoting.server.selector import Limits
from aerobee.store.files.local_time import local_day
from aerobee.store.format.timer import WHEEL_TOPIC
from aerobee.store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    import trio

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.broker.core.puts import Hook
    from aerobee.remoting.server.connection import Connection
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.format.record import MessageDraft
    from aerobee.store.results import Recovery

__all__ = ["Parts"]

log = structlog.stdlib.get_logger("aerobee.broker")


class Service(Protocol):
    """One task that runs until cancelled, and says when it has begun."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> object: ...


class Parts:
    """A broker taken apart. Attributes are its parts."""

    def __init__(self, config: BrokerConfig, *, disk: Disk, clock: Clock) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.stats = BrokerStats()
        self.store = MessageStore(
            config.store, disk=disk, clock=clock, topics_known=self._topic_is_known
        )
        self.puts = Puts(self.store, clock, finish_round=self.finish_round)
        self.puts.hooks = (self._timer_hook(), delay_hook(self.store.levels))
        self._make_state()
        self.registration = self._make_registration()
        self.hold = Hold(self.store.max_offset, self._place_limits(config.broker.max_held_pulls))
        self._make_pop_hold()
        self.member_changes = MemberChanges(
            self.clients,
            enabled=lambda: config.broker.notify_consumer_ids_changed_enable,
            flush=lambda: self.reactor.flush(),
        )
        self.store.space.queues.on_deleted = UnreadReport(self.offsets, self.stats).deleted
        self.destinations = Destinations(
            config.broker,
            topics=self.topics,
            groups=self.groups,
            clock=clock,
            random_queue=random.randrange,
        )
        self.access = ReadAccess(config.broker, topics=self.topics, groups=self.groups, clock=clock)
        self.dead_letters = DeadLetters(
            topics=self.topics,
            groups=self.groups,
            locks=self.locks,
            stats=self.stats,
            clock=clock,
        )
        self.store_host = packed_host(
            _resolved(config.broker.broker_ip1, config.remoting.listen_port)
        )
        """Our published address as records carry it: packed, and the port as i32."""
        self._make_transactions()
        self.timers = self._make_timers()
        self._make_revive()
        self.dedupe = Dedupe(
            parse_dedupe(config.broker.dedupe),
            max_entries=config.broker.dedupe_max_entries,
            store=self.store,
            clock=clock,
            repeated=self.stats.repeated,
        )
        self.processors = make_processors(self)
        self.reactor = self._make_reactor()
        self.store.after_flush = self.after_flush
        self.ticker = LoopTicker(self.stats.loop, clock)
        self.schedule = self._make_schedule()
        self.services: list[Service] = [
            self.store,
            self.saver,
            self.registration,
            self.member_changes,
            self.half_messages,
            self.dedupe,
            self.schedule,
            self.sampling,
            self.protection,
            PoolWatch(self.reactor.pools.values(), clock),
            *([] if self.timers is None else [self.timers]),
            self.revive,
        ]
        """What runs by itself, in the order in which it starts."""

    def _make_reactor(self) -> Reactor:
        pools = make_pools(self.config.remoting)
        self.slow_rounds = SlowRounds(
            self.store.dispatcher,
            pool=pools["send"],
            puts=self.stats.slow_puts,
            clock=self.clock,
            limit_ms=lambda: self.config.remoting.os_page_cache_busy_time_out_ms,
        )
        return Reactor(
            pools=pools,
            limits=self._limits(),
            selectors=self.config.remoting.server_selector_threads,
            refusals=answers.refusal,
            after_round=self.after_round,
            slow_round=self.slow_rounds.look,
            on_connect=self._connected,
            max_connections=self.config.remoting.max_connections,
            descriptors=descriptor_limit(),
        )

    def _make_figures(self) -> None:
        self.sampling = Sampling(
            stats=self.stats,
            store=self.store.stats,
            clock=self.clock,
            cluster=self.config.broker.broker_cluster_name,
            is_system_topic=self.topics.is_system,
            connections=self._connections_so_far,
            day_of=local_day,
        )
        self.protection = Protection(
            self.config.broker,
            stats=self.stats,
            groups=self.groups,
            offsets=self.offsets,
            store=self.store,
            clock=self.clock,
        )
        self.runtime_info = RuntimeInfo(
            self.config,
            store=self.store,
            disk=self.disk,
            clock=self.clock,
            sampling=self.sampling,
            delays=self.state.delays,
            puts=self.stats.slow_puts,
            timers=lambda: self.timers,
        )

    def _connections_so_far(self) -> tuple[int, int]:
        stats = self.reactor.stats
        return stats.connections_opened, stats.connections_closed

    def _make_state(self) -> None:
        self.state = state = State(
            self.config,
            disk=self.disk,
            clock=self.clock,
            topics_changed=self._topics_changed,
            durable=self.puts.durable,
        )
        self.topics, self.groups, self.offsets = state.topics, state.groups, state.offsets
        self.clients, self.locks = state.clients, state.locks
        self.routes, self.kv = state.routes, state.kv
        self.saver, self.topic_file = state.saver, state.topic_file
        self._make_figures()

    def _make_schedule(self) -> Schedule:
        return Schedule(
            store=self.store,
            puts=self.puts,
            offsets=self.state.delays,
            stats=self.stats,
            clock=self.clock,
        )

    def _timer_hook(self) -> Hook:
        store = self.config.store
        self._timer_turn = TimerHook(
            enabled=store.timer_wheel_enable,
            precision_ms=store.timer_precision_ms,
            max_delay_s=store.timer_max_delay_s,
            start_deliver_time=self.config.broker.start_deliver_time_compat,
        )

        def hook(
            draft: MessageDraft, properties: dict[str, str], stored_ms: int, accepted: bool
        ) -> None:
            # Not the store timestamp: when the clock goes back, that stays, and a timer came early.
            self._timer_turn(draft, properties, self.clock.now_ms(), accepted=accepted)

        return hook

    def _make_timers(self) -> Timers | None:
        if not self.config.store.timer_wheel_enable:
            return None
        return Timers(
            self.config.store,
            disk=self.disk,
            store=self.store,
            puts=self.puts,
            counts=self.state.timing,
            stats=self.stats,
            clock=self.clock,
            served=lambda: self.reactor.stats.requests,
        )

    def _make_pop_hold(self) -> None:
        """While no pop waits, what arrives is told to held pulls alone."""
        broker, store = self.config.broker, self.store
        pulls = store.on_arrival = self.hold.arrived

        def arrived(
            topic: str, queue_id: int, end: int, code: int, stored_ms: int, properties: bytes
        ) -> None:
            pulls(topic, queue_id, end, code, stored_ms, properties)
            self.pop_hold.arrived(topic, queue_id, code, properties)

        def listening(on: bool) -> None:
            store.on_arrival = arrived if on else pulls

        limits = PopLimits(
            self._place_limits(broker.max_pop_polling_size),
            broker.pop_polling_size,
            broker.pop_polling_map_size,
        )
        self.pop_hold = PopHold(limits, listening)

    def _place_limits(self, total: int) -> PlaceLimits:
        broker = self.config.broker
        return PlaceLimits(
            total, broker.max_held_requests_of_connection, broker.max_held_requests_of_group
        )

    def _make_revive(self) -> None:
        self.revive_log = ReviveLog(
            self.puts,
            cluster=self.config.broker.broker_cluster_name,
            store_host=self.store_host,
            stats=self.stats.pop,
            clock=self.clock,
        )
        self.revive = Revive(
            config=self.config,
            store=self.store,
            puts=self.puts,
            revive_log=self.revive_log,
            topics=self.topics,
            offsets=self.offsets,
            timing=self._timing(),
            stats=self.stats.pop,
            pace=Pace(self.clock, lambda: self.reactor.stats.requests),
            clock=self.clock,
            store_host=self.store_host,
        )

    def _timing(self) -> Timing:
        if self.timers is None:
            now_ms = self.clock.now_ms
            return Timing(self.store, waiting_end=int, read_to=int, delivered_ms=now_ms)
        timers, max_offset = self.timers.timers, self.store.max_offset
        return Timing(
            self.store,
            waiting_end=lambda: max_offset(WHEEL_TOPIC, 0),
            read_to=lambda: timers.queue_offset,
            delivered_ms=lambda: timers.read_time_ms,
        )

    def _make_transactions(self) -> None:
        self.transactions = self.state.transactions
        self.half_messages = HalfMessages(
            config=self.config,
            store=self.store,
            puts=self.puts,
            topics=self.topics,
            clients=self.clients,
            offsets=self.offsets,
            transactions=self.transactions,
            pace=Pace(self.clock, lambda: self.reactor.stats.requests),
            clock=self.clock,
            store_host=self.store_host,
        )

    # -- what the reactor and the store call -----------------------------------------------------

    def after_round(self) -> None:
        """The messages of a round reach their queues; held pulls that waited for them run."""
        self.store.dispatch()
        self.hold.wake()
        left = WAKE_POPS
        while left and (woken := self.pop_hold.wake(left)):
            # Pops write check points, and those may go on in this round.
            self.store.dispatch()
            left -= woken

    def finish_round(self) -> None:
        """What a service does after its own puts: like the end of a round, and answers leave."""
        self.after_round()
        self.reactor.flush()

    def after_flush(self) -> None:
        """A sync answered its producers, and showed more messages to consumers."""
        self.hold.wake()
        self.pop_hold.wake()
        self.reactor.flush()

    def _connected(self, connection: Connection) -> None:
        connection.on_close.append(self._closed)

    def _closed(self, connection: Connection, reason: str) -> None:
        self.hold.closed(connection)
        self.pop_hold.closed(connection)
        self.processors.client.connection_closed(connection)
        self.processors.route.connection_closed(connection)

    # -- making ----------------------------------------------------------------------------------

    def _make_registration(self) -> Registration:
        broker, remoting = self.config.broker, self.config.remoting
        ha_port = remoting.listen_port + 1 if remoting.listen_port < 65_535 else 0
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
            name_servers=other_name_servers(self.config),
            connect=partial(connected, connect_timeout_s=remoting.connect_timeout_ms / 1000),
            period_ms=broker.register_name_server_period_ms,
            timeout_ms=broker.register_broker_timeout_ms,
            force=broker.force_register,
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
            inbound_bytes=remoting.max_inbound_buffer_bytes,
            outbound_bytes=remoting.max_outbound_buffer_bytes,
            least_per_s=remoting.write_least_rate,
        )

    # -- the start -------------------------------------------------------------------------------

    def _topic_is_known(self, topic: str) -> bool:
        return self.topics.get(topic) is not None

    def _topics_changed(self, names: Iterable[str]) -> None:
        self.registration.topics_changed(names)

    def own_address(self) -> str:
        """The address that other name servers, and records, give for us."""
        return f"{self.config.broker.broker_ip1}:{self.config.remoting.listen_port}"

    def load(self) -> Recovery:
        """Lock the directory, read the tables, recover the store, make the tables agree with it.

        The tables come first: recovery asks them which topics still exist.
        Raises: StoreRefused, TableDamaged, OSError; the directory is free again then.
        """
        self.store.lock()
        try:
            self.state.load()
        except BaseException:
            self.store.unlock()
            raise
        recovery = self.store.load()
        self.state.reconcile(self.store, recovery)
        if self.timers is not None:
            self.timers.load(clean=recovery.clean)
            kept_ms = self.timers.timers.precision_ms
            self._timer_turn = self._timer_turn._replace(precision_ms=kept_ms)
        elif self.store.max_offset(WHEEL_TOPIC, 0):
            log.warning("timer.not_delivered", key="timerWheelEnable")
        return recovery


def _resolved(host: str, port: int) -> tuple[str, int]:
    """Host name or address → address, IPv4 if there is one. Raises: OSError naming the key."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(error.errno, f"brokerIP1 is {host}: {error.strerror}") from error
    preferred = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(preferred[0][4][0]), port
