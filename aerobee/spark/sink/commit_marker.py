"""The commit marker of a sink: the last micro-batch that it has written, stored on the brokers.

The marker is a consumer offset: of a group named after the sink and its query, on queue 0 of the
sink's topic. It is the last batch written, plus one, because some brokers answer 0 for an offset
that was never stored; behind it, in 32 bits, are the rows of that batch. Builds before had no rows
in it: such a mark is smaller than any other. Every broker of the topic stores it; the highest
answer counts.

A batch with other rows than the one that was written under its number is another batch: its
checkpoint has lost that one, or a foreachBatch writes twice with one sinkId. It is refused, because
rows that nobody has written would be passed over.

Invariant: the driver stores a marker when all tasks of its batch have succeeded: a task cannot
tell the end of its rows from a failure upstream. So the topic has all rows of a marked batch,
however they were divided among tasks. A batch without a marker counts as not written; while no
broker answers, nothing is decided. Source: spark §5.7.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Protocol, TypeVar

from aerobee.client.message import GROUP_MAX, check_name
from aerobee.client.route import MASTER_ID
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    OffsetNotFoundError,
    RouteNotFoundError,
    TopicNotFoundError,
)
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.group import CreateGroup
from aerobee.remoting.wire.headers.offset import (
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.client.route import TopicRoute
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

log = logging.getLogger("aerobee.spark")

T = TypeVar("T")

PREFIX = "SPARK_SINK_"
MARKED_QUEUE = 0
PAUSE_S = 1.0
ROWS_BITS = 32
ROWS_MAX = (1 << ROWS_BITS) - 1
"""So many rows, or more."""


class Brokers(Protocol):
    """The requests to the cluster that a commit marker needs."""

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of a topic. Raises: RouteNotFoundError and its subclasses."""

    def call(self, address: str, header: Header, body: bytes = b"") -> Command:
        """Send one request and wait for its response. Raises: AerobeeError."""

    def brokers(self) -> Mapping[str, Sequence[str]]:
        """The addresses of each broker that is registered now. Raises: NoNameServerError."""


def group_of(sink_id: str, query_id: str | None) -> str:
    """The consumer group of the markers. Raises: ConfigurationError for a sinkId that is too long.

    A query from a new checkpoint counts its batches from 0 again and has another id, so it does not
    read the markers of the query before it.
    """
    suffix = "" if query_id is None else f"_{zlib.crc32(query_id.encode()):08x}"
    longest = GROUP_MAX - len(PREFIX) - 9
    check_name("option sinkId", sink_id, longest)
    return f"{PREFIX}{sink_id}{suffix}"


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """The commit marker of one sink."""

    brokers: Brokers
    topic: str
    group: str
    timeout_s: float = 0.0
    """How long it retries while no broker can be reached."""

    def passed(self, batch_id: int) -> bool:
        """Whether this batch has been written already.

        Raises: ConfigurationError if a later one was; the last error if no broker answers in time.
        """
        last, _ = self._patiently(self._written)
        if last > batch_id:
            raise self._refusal(
                f"batch {last} is in topic {self.topic} already, and now batch {batch_id} is to be "
                "written: the checkpoint is older than the topic"
            )
        return last == batch_id

    def check(self, batch_id: int, rows: int) -> None:
        """Check the rows of a batch that was passed over.

        Raises: ConfigurationError if they are more or fewer than those written; the last error if
        no broker answers in time.
        """
        last, written = self._patiently(self._written)
        if last == batch_id and written not in (min(rows, ROWS_MAX), None):
            raise self._refusal(
                f"batch {batch_id} is in topic {self.topic} already, with {written} rows, and now "
                f"batch {batch_id} has {rows} rows: the checkpoint is older than the topic, or two "
                "writes of a batch have one sinkId"
            )

    def _refusal(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"{reason}. Take another sinkId than the one of group {self.group}, or dedupe=none"
        )

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Retry temporary failures until the timeout. Raises: the last error."""
        give_up_at = monotonic() + self.timeout_s
        while True:
            try:
                return ask()
            except (AerobeeError, RemotingError) as error:
                passes = isinstance(error, RemotingError) or error.retryable
                if not passes or monotonic() >= give_up_at:
                    raise
            sleep(PAUSE_S)

    def _written(self) -> tuple[int, int | None]:
        """The last batch that was written, -1 for none, and its number of rows, if known."""
        marks: list[int] = []
        failed: list[AerobeeError | RemotingError] = []
        addresses = self._masters()
        for address in addresses:
            try:
                marks.append(self._mark(address))
            except (AerobeeError, RemotingError) as error:
                failed.append(error)
        if failed and not marks:
            raise failed[-1]
        mark = max(marks, default=0)
        if mark <= ROWS_MAX:
            return mark - 1, None
        batches, rows = divmod(mark, ROWS_MAX + 1)
        return batches - 1, rows

    def _mark(self, address: str) -> int:
        """The marker on one broker, 0 for none; creates the group there."""
        header = QueryConsumerOffset(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=MARKED_QUEUE,
            set_zero_if_not_found=False,
        )
        try:
            answer = self.brokers.call(address, header)
        except OffsetNotFoundError:
            self._make_group(address)
            return 0
        return answer.header(QueryConsumerOffsetResponse).offset

    def store(self, batch_id: int, rows: int) -> None:
        """Store the marker of a written batch. Failures are only logged: the rows are stored."""
        try:
            self._patiently(lambda: self._store(batch_id, rows))
        except (AerobeeError, RemotingError) as error:
            log.warning(
                "no broker keeps that batch %d is written to topic %s (%s): a restart of this "
                "batch writes it again",
                batch_id,
                self.topic,
                error,
            )

    def _store(self, batch_id: int, rows: int) -> None:
        """Store the marker on every broker of the topic. Raises: the last error if all fail."""
        header = UpdateConsumerOffset(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=MARKED_QUEUE,
            commit_offset=((batch_id + 1) << ROWS_BITS) + min(rows, ROWS_MAX),
        )
        stored = 0
        error: AerobeeError | RemotingError = RouteNotFoundError(f"no broker has {self.topic}")
        for address in self._masters():
            try:
                self._update(address, header)
                stored += 1
            except (AerobeeError, RemotingError) as failed:
                log.warning("batch %d is written, but %s: %s", batch_id, address, failed)
                error = failed
        if not stored:
            raise error

    def _update(self, address: str, header: UpdateConsumerOffset) -> None:
        try:
            self.brokers.call(address, header)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            self._make_group(address)
            self.brokers.call(address, header)

    def _make_group(self, address: str) -> None:
        """Create the group: brokers store offsets only of groups that they know."""
        config = SubscriptionGroupConfig(group_name=self.group)
        self.brokers.call(address, CreateGroup(), config.to_bytes())

    def _masters(self) -> list[str]:
        """The addresses of the topic's masters; empty while the topic does not exist yet.

        Raises: BrokerNotFoundError without any registered broker, or while none is a master: slaves
        answer for no marks, and no mark is not taken for no batch.
        """
        try:
            route = self.brokers.route(self.topic, fresh=True)
        except (RouteNotFoundError, TopicNotFoundError):
            if not self.brokers.brokers():
                raise BrokerNotFoundError("the name servers know no broker") from None
            return []
        masters = [by_id[MASTER_ID] for by_id in route.brokers.values() if MASTER_ID in by_id]
        if route.brokers and not masters:
            names = ", ".join(sorted(route.brokers))
            raise BrokerNotFoundError(f"topic {self.topic}: no master of {names} is there now")
        return masters
