"""The commit marker of a sink: which micro-batch it has written last, kept by the brokers.

The mark is a consumer offset: of a group named after the sink and its query, on queue 0 of the
sink's topic. It is the last batch written, plus one, because 0 is what some brokers answer for an
offset that nobody stored. Every broker of the topic gets it; the highest answer counts.

Invariant: a mark is set when all tasks of its batch have ended well, by the driver: a task cannot
tell the end of its rows from a failure in front of it. So a marked batch is in the topic, whole,
however its rows were divided among tasks. What a broker does not know is not written yet; while
none is there to be asked, nothing is decided. Source: spark §5.7.
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
from aerobee.remoting.wire.bodies.subscription_group import SubscriptionGroupConfig
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

__all__ = ["Brokers", "CommitMarker", "group_of"]

log = logging.getLogger("aerobee.spark")

T = TypeVar("T")

PREFIX = "SPARK_SINK_"
MARKED_QUEUE = 0
PAUSE_S = 1.0


class Brokers(Protocol):
    """What a commit marker needs of the cluster."""

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Where a topic is. Raises: RouteNotFoundError and its kin."""

    def call(self, address: str, header: Header, body: bytes = b"") -> Command:
        """One request. Raises: AerobeeError."""

    def brokers(self) -> Mapping[str, Sequence[str]]:
        """The addresses of each broker that is there now. Raises: NoNameServerError."""


def group_of(sink_id: str, query_id: str | None) -> str:
    """The group that keeps the marks. Raises: ConfigurationError for a sinkId too long.

    A query from a new checkpoint counts its batches from 0 again and has another id, so it never
    finds the marks of the one before.
    """
    suffix = "" if query_id is None else f"_{zlib.crc32(query_id.encode()):08x}"
    longest = GROUP_MAX - len(PREFIX) - 9
    check_name("option sinkId", sink_id, longest)
    return f"{PREFIX}{sink_id}{suffix}"


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """The mark of one sink."""

    brokers: Brokers
    topic: str
    group: str
    timeout_s: float = 0.0
    """How long it waits for brokers that are away."""

    def passed(self, batch_id: int) -> bool:
        """Whether this batch is written already.

        Raises: ConfigurationError if a later one is; the last error if no broker answers in time.
        """
        return self._patiently(lambda: self._passed(batch_id))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer; what may pass is asked again until the time-out. Raises: the last error."""
        give_up_at = monotonic() + self.timeout_s
        while True:
            try:
                return ask()
            except (AerobeeError, RemotingError) as error:
                passes = isinstance(error, RemotingError) or error.retryable
                if not passes or monotonic() >= give_up_at:
                    raise
            sleep(PAUSE_S)

    def _passed(self, batch_id: int) -> bool:
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
        if mark > batch_id + 1:
            raise ConfigurationError(
                f"batch {mark - 1} is in topic {self.topic} already, and now batch {batch_id} is "
                "to be written: the checkpoint is older than the topic. Take another sinkId than "
                f"the one of group {self.group}, or dedupe=none"
            )
        return mark == batch_id + 1

    def _mark(self, address: str) -> int:
        """What one broker knows; 0 for nothing. The group is there afterwards."""
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

    def store(self, batch_id: int) -> None:
        """Mark a batch that is written. Failures are logged: the rows are there all the same."""
        try:
            self._patiently(lambda: self._store(batch_id))
        except (AerobeeError, RemotingError) as error:
            log.warning(
                "no broker keeps that batch %d is written to topic %s (%s): a restart of this "
                "batch writes it again",
                batch_id,
                self.topic,
                error,
            )

    def _store(self, batch_id: int) -> None:
        """Store the mark on every broker of the topic. Raises: the last error if none has it."""
        header = UpdateConsumerOffset(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=MARKED_QUEUE,
            commit_offset=batch_id + 1,
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
        """Brokers keep offsets only of groups that they know."""
        config = SubscriptionGroupConfig(group_name=self.group)
        self.brokers.call(address, CreateGroup(), config.to_bytes())

    def _masters(self) -> list[str]:
        """Where marks are; nowhere while the topic is not made yet.

        Raises: BrokerNotFoundError, while there is no broker at all.
        """
        try:
            route = self.brokers.route(self.topic, fresh=True)
        except (RouteNotFoundError, TopicNotFoundError):
            if not self.brokers.brokers():
                raise BrokerNotFoundError("the name servers know no broker") from None
            return []
        return [by_id[MASTER_ID] for by_id in route.brokers.values() if MASTER_ID in by_id]
