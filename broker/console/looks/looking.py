"""Makes snapshots: one pass over the tables of the broker, in steps between which others run.

Nothing is read from the disk but what the lag of a scrape reads: the store times of messages that
groups have not consumed, within its time limit. Source of the lag in messages: GET_CONSUME_STATS.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import trio

from aerobee.broker.console.looks.findings import (
    CLEANS,
    disk_findings,
    finding,
    findings_of,
    ranked,
)
from aerobee.broker.console.looks.snapshot import PERM_NAMES, Snapshot, counts_of
from aerobee.broker.consumers.consumer_offsets import MARKS, NO_OFFSET, OWN_GROUPS
from aerobee.broker.process.host import build
from aerobee.client.steps.admin.topics import instant
from aerobee.client.system_names import is_system_group
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.bodies.topic import MESSAGE_TYPE
from aerobee.remoting.wire.version import describe
from aerobee.store.flags import Flag
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.store.space.watermark import used_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.consumers.clients import ClientConnection, ConsumerGroup
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.figures import Backlog, Sources
    from aerobee.broker.metrics.sampling import Sampling
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.topic import TopicConfig

    Row = Mapping[str, Any]

TICK_S: Final = 2.0
"""A snapshot is shown for so long before another is made."""
OLD_S: Final = 10.0
"""While another is made, an older one is not shown: who asks waits."""


class Tables(NamedTuple):
    """The tables from which a snapshot is read."""

    core: Core
    topics: TopicTable
    consumers: ConsumerTables
    sources: Sources
    sampling: Sampling


class Waiting(NamedTuple):
    """The messages that a group has not consumed in all its topics, as a scrape tells it."""

    lag_s: float | None = 0.0
    in_flight: int = 0


class Requests(NamedTuple):
    """How many requests had come on each connection, by its number, at a time."""

    at: float
    counts: dict[int, int]


class Looking:
    """Gives the newest snapshot to all that look."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._newest: Snapshot | None = None
        self._made = -math.inf
        self._requests = Requests(-math.inf, {})
        self._lock = trio.Lock()

    async def snapshot(self) -> Snapshot:
        """The newest snapshot. A snapshot that is older than a tick is made anew: the first caller
        waits for that, and others get the one before meanwhile.
        """
        clock = self._tables.core.clock
        if self._lock.locked() and self._newest and clock.monotonic() - self._made < OLD_S:
            return self._newest
        async with self._lock:
            if self._newest is None or clock.monotonic() - self._made > TICK_S:
                began = clock.monotonic()
                backlog = await self._tables.sources.read_backlog()
                look = Pass(self._tables, backlog, began, self._requests)
                self._newest = await look.run()
                self._requests = look.requests
                self._made = clock.monotonic()
            return self._newest


class Pass:
    """One pass over the tables."""

    def __init__(self, tables: Tables, backlog: Backlog, began: float, before: Requests) -> None:
        self._core, self._topics, self._consumers, self._sources, self._sampling = tables
        self._backlog = backlog
        self._began = began
        self._before = before
        self.requests = Requests(began, {})
        self._turns = Turns()
        self._groups_of: dict[str, set[str]] = {}
        self._dead: dict[str, int] = {}
        self._last: dict[str, str | None] = {}
        self._bytes_per_s = 0.0

    async def run(self) -> Snapshot:
        """The snapshot."""
        groups = await self._group_rows()
        topics = await self._topic_rows()
        for row in groups:
            row["dead_letters"] = self._dead.get(row["group"], 0)
        clients = await self._client_rows()
        letters: list[Row] = [
            {"group": group, "letters": letters, "last": self._last[group]}
            for group, letters in sorted(self._dead.items())
        ]
        overview = self._overview(topics, groups, letters)
        of_broker = self._findings(overview)
        of_groups: list[Row] = []
        for row in groups:
            await self._turns.give_way()
            of_groups += findings_of(row)
        clock = self._core.clock
        return Snapshot(
            at_ms=clock.now_ms(),
            took_ms=(clock.monotonic() - self._began) * 1000,
            overview=overview,
            broker_findings=of_broker,
            findings=ranked([*of_broker, *of_groups]),
            topics=topics,
            groups=groups,
            clients=clients,
            dead_letters=letters,
        )

    # ── Groups ──

    async def _group_rows(self) -> list[dict[str, Any]]:
        tables = self._consumers
        waiting = await self._waiting()
        known = (tables.groups.configs, tables.clients.consumers, tables.offsets.topics_by_group)
        names = {name for table in known for name in table if not name.startswith(MARKS)}
        rows = []
        for name in sorted(names - set(OWN_GROUPS)):
            await self._turns.give_way()
            rows.append(await self._group_row(name, waiting.get(name, Waiting())))
        return rows

    async def _waiting(self) -> dict[str, Waiting]:
        """The messages that wait for each group, from the lag of its topics."""
        waiting: dict[str, Waiting] = {}
        for lag in self._backlog.lags:
            await self._turns.give_way()
            lag_s, in_flight = waiting.get(lag.group, Waiting())
            oldest_s = None if lag.behind_ms is None else lag.behind_ms / 1000
            lag_s = None if lag_s is None or oldest_s is None else max(lag_s, oldest_s)
            waiting[lag.group] = Waiting(lag_s, in_flight + lag.in_flight)
        return waiting

    async def _group_row(self, name: str, waiting: Waiting) -> dict[str, Any]:
        tables = self._consumers
        online, config = tables.clients.group(name), tables.groups.configs.get(name)
        topics = tables.offsets.topics_of(name)
        if online is not None:
            consumed = online.subscriptions.keys() | tables.compensation.topics(name).keys()
            topics = [topic for topic in topics if topic in consumed]
        lag, retries, per_s = 0, 0, 0.0
        for topic in topics:
            self._groups_of.setdefault(topic, set()).add(name)
            settings = self._topics.get(topic)
            if settings is None:
                continue
            waits = await self._lag(name, topic, settings.read_queue_nums)
            lag += waits
            retries += waits if topic.startswith(RETRY_PREFIX) else 0
            growth = self._sampling.samples.growth("GROUP_GET", f"{topic}@{name}")
            per_s += growth.per_s if growth else 0.0
        for topic in online.subscriptions if online is not None else ():
            self._groups_of.setdefault(topic, set()).add(name)
        return {
            "group": name,
            "members": self._members(online),
            "lag": lag,
            "lag_at_least": lag,
            "lag_s": waiting.lag_s,
            "in_flight": waiting.in_flight,
            "per_s": per_s,
            "model": online.message_model if online is not None else None,
            "topics": sorted(topic for topic in topics if self._topics.get(topic) is not None),
            "enabled": config.consume_enable if config is not None else None,
            "system": is_system_group(name),
            "retries": retries,
        }

    def _members(self, online: ConsumerGroup | None) -> int | None:
        """The members of a group; None: a slave knows those that read from it, and no others."""
        if online is not None:
            return len(online.client_ids())
        return None if self._core.role.is_slave else 0

    async def _lag(self, group: str, topic: str, queues: int) -> int:
        """Messages of a topic that a group has not consumed."""
        offsets, store = self._consumers.offsets, self._core.store
        lag = 0
        for queue_id in range(queues):
            await self._turns.give_way()
            at = offsets.query(group, topic, queue_id)
            # An offset may lie behind the end, where the log was cut: then nothing waits.
            lag += max(0, store.max_offset(topic, queue_id) - (0 if at == NO_OFFSET else at))
        return lag

    # ── Topics ──

    async def _topic_rows(self) -> list[Row]:
        halves = dict(self._sources.half_messages())
        timers = self._sources.timers.waiting if self._sources.timers is not None else {}
        rows: list[Row] = []
        for name in sorted(self._topics.configs):
            await self._turns.give_way()
            config = self._topics.configs.get(name)
            if config is None:
                continue
            messages = await self._messages(config)
            if name.startswith(DLQ_PREFIX) and messages:
                self._dead[name.removeprefix(DLQ_PREFIX)] = messages
                self._last[name.removeprefix(DLQ_PREFIX)] = await self._last_stored(config)
            growth = self._sampling.samples.growth("TOPIC_PUT", name)
            self._bytes_per_s += growth.bytes_per_s if growth else 0.0
            rows.append(
                {
                    "topic": name,
                    "kind": self._kind(name),
                    "type": config.attributes.get(MESSAGE_TYPE),
                    "read_queues": config.read_queue_nums,
                    "write_queues": config.write_queue_nums,
                    "perm": PERM_NAMES.get(config.perm & 6, "none"),
                    "messages": messages,
                    "messages_at_least": messages,
                    "in_per_s": growth.per_s if growth else 0.0,
                    "groups": sorted(self._groups_of.get(name, ())),
                    "delayed": timers.get(name, 0),
                    "half": halves.get(name, 0),
                }
            )
        return rows

    async def _last_stored(self, config: TopicConfig) -> str | None:
        """When the newest message of a topic was stored, as commands print it; None: not known."""
        store, name = self._core.store, config.topic_name
        newest_ms = -1
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            await self._turns.give_way()
            last = store.max_offset(name, queue_id) - 1
            if last < max(0, store.min_offset(name, queue_id)):
                continue
            call = partial(store.store_time, name, queue_id, last)
            try:
                newest_ms = max(newest_ms, await store.complete(call))
            except OSError:
                return None
        newest = instant(newest_ms)
        return None if newest is None else msgspec.to_builtins(newest)

    def _kind(self, name: str) -> str:
        if name.startswith(RETRY_PREFIX):
            return "retry"
        if name.startswith(DLQ_PREFIX):
            return "dead"
        return "system" if self._topics.is_system(name) else "normal"

    async def _messages(self, config: TopicConfig) -> int:
        """Messages of a topic that can be read."""
        store, name = self._core.store, config.topic_name
        messages = 0
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            await self._turns.give_way()
            first = max(0, store.min_offset(name, queue_id))
            messages += max(0, store.max_offset(name, queue_id) - first)
        return messages

    # ── Clients ──

    async def _client_rows(self) -> list[Row]:
        clients, broker = self._consumers.clients, self._core.config.broker.broker_name
        groups = [("consumer", group.name, group.clients) for group in clients.consumers.values()]
        groups += [("producer", name, members) for name, members in clients.producers.items()]
        now_ms = self._core.clock.monotonic() * 1000
        rows: list[Row] = []
        for kind, group, members in groups:
            for client in list(members.values()):
                await self._turns.give_way()
                rows.append(
                    {
                        "kind": kind,
                        "group": group,
                        "client": client.client_id,
                        "address": client.connection.address,
                        "language": client.language,
                        "version": describe(client.version),
                        "broker": broker,
                        "requests_per_s": self._requests_per_s(client.connection),
                        "silent_s": max(0.0, now_ms - client.last_update_ms) / 1000,
                    }
                )
        return rows

    def _requests_per_s(self, connection: ClientConnection) -> float | None:
        """Requests of a connection since the last look; None: it was not there then."""
        self.requests.counts[connection.id] = connection.requests
        before = self._before.counts.get(connection.id)
        if before is None:
            return None
        return (connection.requests - before) / (self._began - self._before.at)

    # ── The whole ──

    def _overview(
        self, topics: Sequence[Row], groups: Sequence[Row], letters: Sequence[Row]
    ) -> dict[str, Any]:
        core, sampling = self._core, self._sampling
        broker, store = core.config.broker, core.store
        totals = sampling.now()
        try:
            space = self._sources.space()
        except OSError:
            space = None
        return {
            "broker": broker.broker_name,
            "cluster": broker.broker_cluster_name,
            "address": core.address,
            "role": "slave" if core.role.is_slave else "master",
            "version": build().version,
            "up_s": core.clock.monotonic() - core.began,
            "brokers": 1,
            "brokers_up": 1,
            "in_per_s": sampling.rates("put")[0],
            "out_per_s": sampling.rates("transferred")[0],
            "bytes_in_per_s": self._bytes_per_s,
            "in_today": totals.put - sampling.today.put,
            "out_today": totals.got - sampling.today.got,
            "connections": core.rounds.reactor.stats.connections,
            **counts_of(topics, groups, letters, known=True),
            "disk_percent": None if space is None else used_percent(space),
            "disk_free_bytes": None if space is None else space.available_bytes,
            "disk_full_in_s": None
            if space is None or not self._bytes_per_s
            else space.available_bytes / self._bytes_per_s,
            "log_bytes": store.commit_log.max_offset - store.commit_log.min_offset,
            "oldest_at_ms": self._backlog.earliest_ms,
            "problem": store.flags.fault or "",
        }

    def _findings(self, overview: Row) -> list[Row]:
        """The findings about the broker itself."""
        findings: list[Row] = []
        if overview["problem"]:
            text = f"sends are refused: {overview['problem']}"
            is_full = self._core.store.flags.has(Flag.DISK_FULL)
            advice = CLEANS if is_full else "aerobee cluster info"
            findings.append(finding("error", "refuses_sends", text, advice))
        state = self._sources.slave_state()
        if state not in ("", "following"):
            text = f"this slave does not follow its master: {state}"
            findings.append(finding("error", "slave", text, "aerobee ha doctor"))
        for address, slave in self._sources.slaves().items():
            if not slave.in_sync:
                text = f"the slave at {address} is {slave.lag_bytes} bytes behind"
                findings.append(finding("warning", "slave_behind", text, "aerobee ha doctor"))
        name, percent = overview["broker"], overview["disk_percent"]
        return [*findings, *disk_findings(name, percent, overview["disk_full_in_s"])]
