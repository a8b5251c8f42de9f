"""GET_BROKER_RUNTIME_INFO: the figures of a broker, under the names that tools and exporters read.

A missing key breaks exporters, so all keys are here; a key without a meaning in this broker is 0.
Keys that begin with `aerobee` are ours: tools print or leave out the keys that they do not know.
Single puts are not timed, because each is a copy in memory: only the puts of slow rounds are, and
all others count as fast. The time of a get is not measured either.
Source: semantics §16, admin §6.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aerobee.broker.counters.broker_stats import PUT_BOUNDS_S
from aerobee.broker.process.host import build
from aerobee.remoting.wire.codes import VERSION
from aerobee.remoting.wire.version import describe
from aerobee.store.errors import Unreadable
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.space.watermark import used_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aerobee.broker.core.core import Core
    from aerobee.broker.delay.delay_offsets import DelayOffsetTable
    from aerobee.broker.metrics.figures import TimerFigures
    from aerobee.broker.metrics.sampling import Sampling
    from aerobee.store.files.machine import Space

NO_POOL: Final = 2_147_483_647
"""RocketMQ's figure of free buffers when it has no buffer pool."""
POOLS: Final = {
    "sendThreadPoolQueue": "send",
    "pullThreadPoolQueue": "pull",
    "litePullThreadPoolQueue": "lite_pull",
    "queryThreadPoolQueue": "query",
    "ackThreadPoolQueue": "ack",
}
BUCKETS: Final = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s",
    "1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip
UPPER_MS: Final = (0.0, *(bound * 1000.0 for bound in PUT_BOUNDS_S), 10_000.0)
"""The upper bound of each bucket; the last one has none and shows its lower bound."""
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NO_COUNT: Final = (
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "pageCacheLockTimeMills",
    "timerCongestNum",
    "timerOffsetBehind",
    "timerReadBehind",
)
NO_RATE: Final = ("timerDequeueTps", "timerEnqueueTps")
NOT_MEASURED: Final = dict.fromkeys(NO_COUNT, "0") | dict.fromkeys(NO_RATE, "0.0")


class RuntimeInfo:
    """The figures, computed for each request."""

    def __init__(
        self,
        core: Core,
        *,
        sampling: Sampling,
        delays: DelayOffsetTable,
        timers: TimerFigures | None,
        copies: Callable[[], str],
    ) -> None:
        """`timers` is None without the timer wheel; `copies` says how slaves stand."""
        self._config = core.config
        self._store = core.store
        self._disk = core.disk
        self._clock = core.clock
        self._puts = core.stats.slow_puts
        self._pools = core.rounds.reactor.pools
        self._sampling = sampling
        self._delays = delays
        self._timers = timers
        self._copies = copies
        self._began_ms = core.began_ms
        self._began = core.began

    async def figures(self) -> dict[str, str]:
        """Every key with its text."""
        info = dict(NOT_MEASURED)
        info |= self._life() | self._rates() | self._counts() | self._pool_figures()
        info |= self._put_times() | self._wheel()
        info |= await self._log() | self._disk_space() | self._delay_levels()
        return info

    def _life(self) -> dict[str, str]:
        seconds = int(self._clock.monotonic() - self._began)
        days, hours = seconds // DAY_S, seconds % DAY_S // HOUR_S
        minutes, rest = seconds % HOUR_S // MINUTE_S, seconds % MINUTE_S
        gate_ms = self._config.broker.start_accept_send_request_time_stamp_ms
        return {
            "brokerVersionDesc": describe(VERSION),
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._began_ms),
            # Ours beside RocketMQ's: its version says which protocol this broker speaks.
            "aerobeeVersion": build().version,
            "aerobeeUptimeSeconds": str(seconds),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]",
            "startAcceptSendRequestTimeStamp": str(gate_ms),
        } | ({"aerobeeReplication": copies} if (copies := self._copies()) else {})

    def _rates(self) -> dict[str, str]:
        rates = self._sampling.rates("found")
        missed = self._sampling.rates("missed")
        total = tuple(a + b for a, b in zip(rates, missed, strict=True))
        transferred = three(self._sampling.rates("transferred"))
        return {
            "putTps": three(self._sampling.rates("put")),
            "getFoundTps": three(rates),
            "getMissTps": three(missed),
            "getTotalTps": three(total),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,
        }

    def _counts(self) -> dict[str, str]:
        stats, sampling = self._store.stats, self._sampling
        times = max(1, stats.messages_put)
        now, today, yesterday = sampling.now(), sampling.today, sampling.yesterday
        return {
            "putMessageTimesTotal": str(times),
            "putMessageSizeTotal": str(stats.bytes_put),
            "putMessageAverageSize": str(stats.bytes_put / times),
            "putMessageFailedTimes": str(stats.puts_refused),
            "msgPutTotalYesterdayMorning": str(yesterday.put),
            "msgPutTotalTodayMorning": str(today.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgGetTotalYesterdayMorning": str(yesterday.got),
            "msgGetTotalTodayMorning": str(today.got),
            "msgGetTotalTodayNow": str(now.got),
        }

    def _put_times(self) -> dict[str, str]:
        """The put times of the last minute; the longest is since the start."""
        slow = self._sampling.slow_puts()
        # Slow puts are sampled every 10 s, so the two minutes differ a little.
        quick = max(0, round(self._sampling.rates("put")[1] * MINUTE_S) - sum(slow))
        counts = (quick, *slow)
        return {
            "putMessageDistributeTime": "".join(
                f"[{name}]:{n} " for name, n in zip(BUCKETS, counts, strict=True)
            ),
            "putMessageEntireTimeMax": str(round(self._puts.max_s * 1000)),
            "putLatency99": str(latency_ms(counts, 0.99)),
            "putLatency999": str(latency_ms(counts, 0.999)),
        }

    def _wheel(self) -> dict[str, str]:
        timers = self._timers
        if timers is None:
            return {}
        return {
            "timerReadBehind": str(timers.late_ms // 1000),
            "timerOffsetBehind": str(timers.unread),
            "timerCongestNum": str(sum(timers.waiting.values())),
            "timerEnqueueTps": str(self._sampling.rates("timers_in")[1]),
            "timerDequeueTps": str(self._sampling.rates("timers_out")[1]),
        }

    def _pool_figures(self) -> dict[str, str]:
        pools, now = self._pools, self._clock.monotonic()
        info = {}
        for key, name in POOLS.items():
            pool = pools.get(name)
            info[f"{key}Size"] = str(pool.depth if pool else 0)
            info[f"{key}Capacity"] = str(pool.capacity if pool else 0)
            waited_ms = pool.head_wait_s(now) * 1000 if pool else 0
            info[f"{key}HeadWaitTimeMills"] = f"{waited_ms:.0f}"
        ends = pools.get("transaction")
        info["EndTransactionQueueSize"] = str(ends.depth if ends else 0)
        info["EndTransactionThreadPoolQueueCapacity"] = str(ends.capacity if ends else 0)
        return info

    async def _log(self) -> dict[str, str]:
        store = self._store
        first, end = store.commit_log.min_offset, store.commit_log.max_offset
        earliest_ms = -1
        if first < end:
            with suppress(Unreadable):
                earliest_ms = await store.complete(lambda: store.reader.log_time(first))
        return {
            "commitLogMinOffset": str(first),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            # Tools subtract it from now, so -1 would be shown as many years.
            "earliestMessageTimeStamp": str(
                earliest_ms if earliest_ms > 0 else self._clock.now_ms()
            ),
            "remainHowManyDataToFlush": in_units(store.flush_behind_bytes),
            "remainTransientStoreBufferNumbs": str(NO_POOL),
        }

    def _disk_space(self) -> dict[str, str]:
        directory = self._store.commit_log.queue.directory
        log, root = self._space(directory), self._space(self._store.queues.directory)
        info = {
            "commitLogDiskRatio": used_ratio(log),
            f"commitLogDiskRatio_{directory}": used_ratio(log),
            "consumeQueueDiskRatio": used_ratio(root),
            "commitLogDirCapacity": "Total : 0 B, Free : 0 B.",
        }
        if log is not None:
            total, free = in_units(log.total_bytes), in_units(log.available_bytes)
            info["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
        return info

    def _space(self, directory: Path) -> Space | None:
        try:
            return self._disk.free_space(directory)
        except OSError:
            return None

    def _delay_levels(self) -> dict[str, str]:
        store = self._store
        return {
            f"scheduleMessageOffset_{level}": f"{at},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, at in sorted(self._delays.offsets.items())
        }


def latency_ms(counts: Sequence[int], share: float) -> float:
    """The percentile `share` of the put times, as the bucket's upper bound; 0.0 for fast ones."""
    left = (1 - share) * sum(counts)
    for number in range(len(counts) - 1, 0, -1):
        left -= counts[number]
        if left < 0:
            return UPPER_MS[number]
    return 0.0


def three(rates: tuple[float, ...]) -> str:
    """A rate over 10, 60 and 600 s."""
    return " ".join(str(rate) for rate in rates)


def used_ratio(space: Space | None) -> str:
    """Used share of a file system, rounded up to two places; −1 when it is unknown."""
    return "-1" if space is None else str(used_percent(space) / 100)


def in_units(size_bytes: int) -> str:
    """A size with its unit: `0 B`, `12.3 KiB`."""
    if size_bytes < 1_024:
        return f"{size_bytes} B"
    power = min(len(UNITS) - 1, (size_bytes.bit_length() - 1) // 10)
    return f"{size_bytes / 1_024**power:.1f} {UNITS[power]}"
