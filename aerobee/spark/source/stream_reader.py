"""A stream of micro-batches: where it begins, how far each batch goes, what each task reads.

Spark keeps one object of this class in a process of the driver for the whole query and asks it for
offsets and partitions; what is on `self` lives as long as the query runs. `read` runs on another
object in another process, which knows the options only. Offsets travel through Spark's checkpoint
as dicts of texts and numbers, and are compared there as JSON text: no news must be the same text.

Invariant: what a batch reads depends on its two offsets and on nothing that was learned later. So
the end of the first batch tells where that batch began (`@start`), for Spark asks a restarted query
anew where it begins, and "latest" means something else by then. A broker that is down is no loss of
data: its queues stay where they are until it is back. Source: spark §5.3, §5.4.
"""

from __future__ import annotations

import logging
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from aerobee.errors import BrokerNotFoundError
from aerobee.spark.offsets import STARTED, At, Committed, from_nested, to_nested
from aerobee.spark.source.plan import (
    backlog,
    carried,
    checked,
    limit_of,
    limited,
    partitions_of,
    ranges_of,
    waits,
)
from aerobee.spark.source.positions import check_expression, resolved
from aerobee.spark.source.state_location import StateLocation
from aerobee.spark.source.streaming import StreamCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from aerobee.spark.offsets import Offsets
    from aerobee.spark.options import ReadOptions

__all__ = ["StreamReader"]

log = logging.getLogger("aerobee.spark")

try:
    LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:
    # PySpark before 4.2: no limits, no AvailableNow for sources in Python.
    LIMITS = None

Json: TypeAlias = dict[str, Any]
"""Offsets as Spark keeps them: topic → broker → queue number → next offset."""


class StreamReader(DataSourceStreamReader):
    """One source of a streaming query, for PySpark 4.0 to 4.3. `clock` counts in seconds."""

    def __init__(
        self,
        options: ReadOptions,
        names: tuple[str, ...],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.options = options
        self.names = names
        """The columns, as the schema preset calls them."""
        self._at = StreamCluster(options, clock)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        """Where an AvailableNow run ends."""
        self._latest: Offsets | None = None
        """What `latestOffset` saw last, without limits."""
        self._last_end: Json | None = None
        self._last_batch_at: float | None = None

    # ── What Spark asks ──

    def initialOffset(self) -> Json:  # noqa: N802  (Spark's name)
        """Where the first batch begins; asked more than once, answered once.

        Raises: ConfigurationError, RouteNotFoundError, and the errors of brokers: a stream does not
        begin with a part of its queues.
        """
        from aerobee.spark.logs import set_up

        set_up()
        if self._initial is None:
            self._initial = self._settled()
        return to_nested(self._initial)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Freeze where the run ends. Raises: the errors of brokers, for none may be left out."""
        self._at.look_up(strict=True)
        self._target = self._at.cluster.max_offsets(list(self._at.routed))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """The options' limit as Spark's object; `latestOffset` gets it back, or another one."""
        options = self.options
        if options.max_offsets_per_trigger is not None:
            return LIMITS.ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return LIMITS.ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return LIMITS.ReadMinRows(options.min_offsets_per_trigger)
        return LIMITS.ReadAllAvailable()

    def latestOffset(  # noqa: N802  (Spark's name)
        self, start: Json | None = None, limit: object = None
    ) -> Json:
        """Where the next batch ends; `start` itself when there is nothing for a batch.

        PySpark before 4.2 gives no arguments. Raises: DataLossError where a queue ends before
        `start`, unless losses are to be skipped.
        """
        if start is None:
            start = self._last_end or self.initialOffset()
        begin = from_nested(start, "offsets of the checkpoint")
        self._at.look_up()
        self._at.tell_of_missing(begin)
        # Spark calls `commit` only while it plans another batch, and never for the last one.
        self._at.tell(begin)
        self._latest = carried(begin, self._maxima(begin))
        end = self._admitted(begin, self._latest, limit)
        if STARTED not in start and start == to_nested(self._initial or {}):
            return {**to_nested(end), STARTED: start}
        return start if end == begin else to_nested(end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802  (Spark's name)
        """The ends of the queues when `latestOffset` looked last; nothing is asked for it."""
        return None if self._latest is None else to_nested(self._latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The tasks of a batch; each partition's value is a tuple of `plan.Range`.

        Raises: DataLossError, BrokerNotFoundError for a queue without a known address.
        """
        self._last_end = end
        if start == end:
            return []
        begin = from_nested(end.get(STARTED, start), "offsets of the checkpoint")
        found = checked(
            *self._to_read(begin, from_nested(end, "offsets of the checkpoint")),
            fail=self.options.fail_on_data_loss,
        )
        for loss in found.losses:
            log.warning("%s; skipped", loss)
        planned = partitions_of(
            ranges_of(found.start, found.end, self._at.addresses),
            self.options.min_partitions,
            self.options.max_records_per_partition,
            together=True,
        )
        return [InputPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one partition; in a process that has planned nothing."""
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.task import record_batches

        set_up()
        yield from record_batches(partition.value, self.options, self.names)

    def commit(self, end: Json) -> None:
        """Everything before `end` is done: tell the broker if the options say so."""
        self._at.tell(from_nested(end, "offsets of the checkpoint"))

    # ── Where it begins ──

    def _settled(self) -> Offsets:
        """The start: kept by an earlier run, or resolved now and kept."""
        options = self.options
        state = None
        if options.state_location is not None:
            state = StateLocation(options.state_location, self._source)
            if (kept := state.read()) is not None:
                return from_nested(kept, f"offsets of {state.place}")
        self._at.look_up(strict=True)
        queues = list(self._at.routed)
        check_expression(self._at.cluster, queues, options)
        initial = resolved(self._at.cluster, options.starting, queues, options)
        if isinstance(options.starting, Committed) and options.commit_offsets:
            # A restart before the first batch is done finds these again.
            self._at.tell(initial)
        if state is not None:
            kept = state.settle(self._starting, to_nested(initial))
            initial = from_nested(kept, f"offsets of {state.place}")
        return initial

    @property
    def _source(self) -> str:
        """What is read, in words that stay the same from run to run."""
        options = self.options
        what = options.subscribe_pattern or ",".join(
            map(str, options.assign or options.subscribe or ())
        )
        return f"{what} for group {options.group}" if options.group_given else what

    @property
    def _starting(self) -> str:
        """The position, in words."""
        starting = self.options.starting
        if isinstance(starting, At):
            return f"offsets {to_nested(dict(starting.offsets))}"
        return repr(starting)

    # ── How far a batch goes ──

    def _maxima(self, begin: Offsets) -> Offsets:
        """The end of each queue that can be asked; of an AvailableNow run the frozen ones."""
        if self._target is None:
            return self._at.ends(self._at.routed, begin)
        # A stream that begins at its end begins behind what was frozen a moment before.
        past = [queue for queue, end in self._target.items() if begin.get(queue, 0) > end]
        ends = self._at.ends(past, begin)
        here = {queue: min(begin[queue], ends.get(queue, begin[queue])) for queue in past}
        return self._target | here

    def _admitted(self, begin: Offsets, latest: Offsets, limit: object) -> Offsets:
        """`latest`, or as much before it as the limits allow; `begin` to wait for more.

        Raises: DataLossError where `latest` lies before `begin`.
        """
        options = self.options
        now = self._at.clock()
        # Trigger.Once says that everything is to be read, whatever the options say.
        everything = LIMITS is not None and isinstance(limit, LIMITS.ReadAllAvailable)
        if not everything and self._target is None:
            since = None if self._last_batch_at is None else now - self._last_batch_at
            least, delay_s = options.min_offsets_per_trigger, options.max_trigger_delay_s
            if waits(backlog(begin, latest), least, since, delay_s):
                return begin
        max_rows = getattr(limit, "max_rows", options.max_offsets_per_trigger)
        max_bytes = getattr(limit, "max_bytes", options.max_bytes_per_trigger)
        limitless = everything or (max_rows is None and max_bytes is None)
        minima: Offsets = {}
        if not limitless:
            waiting = [queue for queue in latest if begin.get(queue, 0) < latest[queue]]
            minima = self._at.asked(waiting, self._at.cluster.min_offsets)
        found = checked(begin, latest, minima, latest, fail=options.fail_on_data_loss)
        end = carried(begin, latest)
        if not limitless:
            mean = None if max_bytes is None else self._at.mean_record_bytes(found.start, found.end)
            count = limit_of(max_rows, max_bytes, mean)
            assert count is not None
            end = limited(found.start, found.end, count)
        if end != begin:
            self._last_batch_at = now
        return end

    # ── What a batch reads ──

    def _to_read(self, begin: Offsets, end: Offsets) -> tuple[Offsets, Offsets, Offsets, Offsets]:
        """The part of a batch that is not empty, and the bounds of its queues."""
        read = {queue: offset for queue, offset in end.items() if begin.get(queue, 0) != offset}
        self._at.look_up()
        if unknown := [queue for queue in read if queue not in self._at.addresses]:
            raise BrokerNotFoundError(
                f"{unknown[0]}: no name server knows where to read it, but the batch that was "
                "planned before needs it; start the query again when its broker is back, or with "
                "a new checkpoint if it is gone for good"
            )
        minima = self._at.asked(read, self._at.cluster.min_offsets)
        maxima = self._at.asked(read, self._at.cluster.max_offsets)
        for queue, last in maxima.items():
            if last < read[queue] and not self._at.cluster.has_master(queue):
                raise BrokerNotFoundError(
                    f"{queue}: its master is down, and the slave that answers ends at {last}, "
                    f"before the batch that was planned, {read[queue]}; start the query again when "
                    "the master is back"
                )
        return {queue: begin[queue] for queue in read if queue in begin}, read, minima, maxima


if LIMITS is not None:
    LIMITS.SupportsTriggerAvailableNow.register(StreamReader)
