"""Reads topics as a stream of micro-batches: its start, the end of each batch, and the tasks.

Spark keeps one object of this class in a process of the driver for the whole query and asks it for
offsets and partitions; its attributes live as long as the query runs. `read` runs on another object
in another process, which has the options only. Spark stores offsets in its checkpoint as dicts of
strings and numbers and compares them as JSON text: equal offsets must be the same text.

Invariant: what a batch reads depends on its two offsets only, not on what is learned later. So the
end of the first batch records where that batch began (`@start`), because Spark asks a restarted
query again where it begins, when "latest" has another value. The end of a batch also records how to
know its topics again (`@last`), and the queues whose topic was deleted and made anew (`@renewed`):
they begin again, which is data loss. A broker that is down is no data loss: its queues keep their
offsets until it is back.
Source: spark §5.3, §5.4.
"""

from __future__ import annotations

import logging
from importlib import import_module
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from aerobee.errors import BrokerNotFoundError
from aerobee.spark.offsets import (
    LAST,
    RENEWED,
    STARTED,
    CommittedPosition,
    ExplicitPosition,
    from_nested,
    to_nested,
)
from aerobee.spark.source.last_read import LastRead
from aerobee.spark.source.plan import (
    Loss,
    LossCause,
    backlog,
    carried,
    checked,
    limit_of,
    limited,
    partitions_of,
    ranges_of,
    refuse,
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

log = logging.getLogger("aerobee.spark")

IDLE_S = 0.1
"""The least time between two looks for new messages while there are none."""

try:
    LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:
    # PySpark before 4.2: no limits, no AvailableNow for sources in Python.
    LIMITS = None

Json: TypeAlias = dict[str, Any]
"""Offsets in Spark's checkpoint: topic → broker → queue number → next offset."""


class StreamReader(DataSourceStreamReader):
    """The reader of a stream, for PySpark 4.0 to 4.3. `clock` and `wait` count in seconds."""

    def __init__(
        self,
        options: ReadOptions,
        names: tuple[str, ...],
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self.options = options
        self._wait = wait
        self.names = names
        """The columns, by the names of the schema preset."""
        self._at = StreamCluster(options, clock)
        self._last_read = LastRead(self._at)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        """The end of an AvailableNow run."""
        self._latest: Offsets | None = None
        """The last result of `latestOffset`, without limits."""
        self._idle_at: float | None = None
        """When the last `latestOffset` found nothing for a batch."""
        self._last_end: Json | None = None
        self._last_batch_at: float | None = None

    # ── Methods that Spark calls ──

    def initialOffset(self) -> Json:  # noqa: N802  (Spark's name)
        """The start of the first batch. Spark may call it again; the result stays the same.

        Raises: ConfigurationError, RouteNotFoundError, and the errors of brokers: a stream does not
        begin with a part of its queues.
        """
        from aerobee.spark.logs import set_up

        set_up()
        if self._initial is None:
            self._initial = self._settled()
        return to_nested(self._initial)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Fix the end of the run. Raises: the errors of brokers; no queue may be left out."""
        self._at.look_up(strict=True)
        self._target = self._at.cluster.max_offsets(list(self._at.routed))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """The options' limit as Spark's object, which `latestOffset` gets, unless another one."""
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
        """The end of the next batch; `start` itself if there is nothing for a batch.

        PySpark before 4.2 passes no arguments. Raises: DataLossError where a queue ends before
        `start`, or has not what was read of it, unless losses are to be skipped.
        """
        if start is None:
            start = self._last_end or self.initialOffset()
        self._pause()
        begin = from_nested(start, "offsets of the checkpoint")
        self._at.look_up()
        self._at.tell_of_missing(begin)
        # Spark calls `commit` only while it plans another batch, and never for the last one.
        self._at.tell(begin)
        times = from_nested(start.get(LAST, {}), "offsets of the checkpoint")
        times = self._last_read.known(begin, times)
        maxima = self._maxima(begin)
        self._latest = carried(begin, maxima)
        if self._waits(begin, self._latest, limit):
            self._idle_at = self._at.clock()
            return start
        renewed, losses = self._last_read.changed(begin, self._latest, times)
        self._accept(losses)
        if renewed:
            begin |= renewed
            self._latest = carried(begin, maxima)
        end = self._admitted(begin, self._latest, limit)
        notes: Json = {}
        if STARTED not in start and start == to_nested(self._initial or {}):
            notes[STARTED] = start
        if renewed:
            # Also without messages: the end of a batch outlives this process.
            notes[RENEWED] = to_nested(renewed)
        if end == begin and not notes:
            self._idle_at = self._at.clock()
            return start
        old = {queue: ms for queue, ms in times.items() if queue not in renewed}
        if last := self._last_read.times(begin, end, old):
            notes[LAST] = to_nested(last)
        return {**to_nested(end), **notes}

    def reportLatestOffset(self) -> Json | None:  # noqa: N802  (Spark's name)
        """The ends of the queues at the last `latestOffset`, without new requests."""
        return None if self._latest is None else to_nested(self._latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Plan the tasks of a batch; each partition's value is a tuple of `plan.Range`.

        Raises: DataLossError, BrokerNotFoundError for a queue without a known address.
        """
        self._last_end = end
        if start == end:
            return []
        begin = from_nested(end.get(STARTED, start), "offsets of the checkpoint")
        begin |= self._begun_again(begin, end)
        plan = checked(
            *self._to_read(begin, from_nested(end, "offsets of the checkpoint")),
            fail=self.options.fail_on_data_loss,
        )
        for loss in plan.losses:
            log.warning("%s; skipped", loss)
        planned = partitions_of(
            ranges_of(plan.start, plan.end, self._at.addresses),
            self.options.min_partitions,
            self.options.max_records_per_partition,
        )
        return [InputPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition; runs in a process that has planned nothing."""
        from aerobee.spark.logs import set_up
        from aerobee.spark.source.task import record_batches

        set_up()
        yield from record_batches(partition.value, self.options, self.names)

    def commit(self, end: Json) -> None:
        """Commit the offsets before `end` to the brokers if the options ask for it."""
        self._at.tell(from_nested(end, "offsets of the checkpoint"))

    # ── Start ──

    def _settled(self) -> Offsets:
        """The start: stored by an earlier run, or resolved and stored now."""
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
        if isinstance(options.starting, CommittedPosition) and options.commit_offsets:
            # A restart before the end of the first batch reads these again.
            self._at.tell(initial)
        if state is not None:
            kept = state.settle(self._starting, to_nested(initial))
            initial = from_nested(kept, f"offsets of {state.place}")
        return initial

    @property
    def _source(self) -> str:
        """A description of the source that stays the same from run to run."""
        options = self.options
        what = options.subscribe_pattern or ",".join(
            map(str, options.assign or options.subscribe or ())
        )
        return f"{what} for group {options.group}" if options.group_given else what

    @property
    def _starting(self) -> str:
        """A description of the position."""
        starting = self.options.starting
        if isinstance(starting, ExplicitPosition):
            return f"offsets {to_nested(dict(starting.offsets)) | dict(starting.topics)}"
        return repr(starting)

    # ── End of a batch ──

    def _pause(self) -> None:
        """Wait until an idle stream may ask brokers again.

        Without an interval between triggers Spark asks for new messages a hundred times a second.
        """
        if self._idle_at is not None:
            left_s = self._idle_at + IDLE_S - self._at.clock()
            self._idle_at = None
            if left_s > 0:
                self._wait(left_s)

    def _maxima(self, begin: Offsets) -> Offsets:
        """The end of each queue that can be queried; in an AvailableNow run the fixed ends."""
        if self._target is None:
            return self._at.ends(self._at.routed, begin)
        # A stream that starts at "latest" starts after the ends that were fixed a moment before.
        past = [queue for queue, end in self._target.items() if begin.get(queue, 0) > end]
        ends = self._at.ends(past, begin)
        here = {queue: min(begin[queue], ends.get(queue, begin[queue])) for queue in past}
        return self._target | here

    def _waits(self, begin: Offsets, latest: Offsets, limit: object) -> bool:
        """Whether there is no batch yet because the options want more messages in it."""
        if self._target is not None or _everything(limit):
            return False
        last = self._last_batch_at
        since_s = None if last is None else self._at.clock() - last
        options = self.options
        # A queue that ends before its place may be of a topic made anew: then all of it waits.
        reached = {queue: at for queue, at in begin.items() if at <= latest.get(queue, at)}
        return waits(
            backlog(reached, latest),
            options.min_offsets_per_trigger,
            since_s,
            options.max_trigger_delay_s,
        )

    def _admitted(self, begin: Offsets, latest: Offsets, limit: object) -> Offsets:
        """The end within the limits, at most `latest`.

        Raises: DataLossError where `latest` lies before `begin`.
        """
        options = self.options
        max_rows = getattr(limit, "max_rows", options.max_offsets_per_trigger)
        max_bytes = getattr(limit, "max_bytes", options.max_bytes_per_trigger)
        limitless = _everything(limit) or (max_rows is None and max_bytes is None)
        minima: Offsets = {}
        if not limitless:
            waiting = [queue for queue in latest if begin.get(queue, 0) < latest[queue]]
            minima = self._at.asked(waiting, self._at.cluster.min_offsets)
        ranges = checked(begin, latest, minima, latest, fail=options.fail_on_data_loss)
        end = carried(begin, latest)
        if not limitless:
            mean = (
                None if max_bytes is None else self._at.mean_record_bytes(ranges.start, ranges.end)
            )
            count = limit_of(max_rows, max_bytes, mean)
            assert count is not None
            end = limited(ranges.start, ranges.end, count)
        if end != begin:
            self._last_batch_at = self._at.clock()
        return end

    # ── Content of a batch ──

    def _begun_again(self, begin: Offsets, end: Json) -> Offsets:
        """Where a batch begins in topics that were made anew.

        Raises: DataLossError, unless losses are to be skipped.
        """
        renewed = from_nested(end.get(RENEWED, {}), "offsets of the checkpoint")
        self._accept(
            [Loss(queue, at, begin[queue], LossCause.RENEWED) for queue, at in renewed.items()]
        )
        return renewed

    def _accept(self, losses: Sequence[Loss]) -> None:
        """Log the losses. Raises: DataLossError, unless losses are to be skipped."""
        if self.options.fail_on_data_loss:
            refuse(losses)
        for loss in losses:
            log.warning("%s; the stream goes on", loss)

    def _to_read(self, begin: Offsets, end: Offsets) -> tuple[Offsets, Offsets, Offsets, Offsets]:
        """The non-empty part of a batch, and the bounds of its queues."""
        read = {queue: offset for queue, offset in end.items() if begin.get(queue, 0) != offset}
        self._at.look_up()
        if unknown := self._at.find(list(read)):
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


def _everything(limit: object) -> bool:
    """Whether Spark asks for everything, whatever the options say, as Trigger.Once does."""
    return LIMITS is not None and isinstance(limit, LIMITS.ReadAllAvailable)


if LIMITS is not None:
    LIMITS.SupportsTriggerAvailableNow.register(StreamReader)
