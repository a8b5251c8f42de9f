"""Resolves what a query reads: its queues, the offset of a position in each, a batch's bounds.

Options → topics → queues and addresses; a position → one offset per queue. A position sends only
the requests that it needs: earliest queries no maximum, explicit offsets query nothing.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from aerobee.errors import BrokerNotFoundError, ConfigurationError, RouteNotFoundError
from aerobee.spark.offsets import (
    EARLIEST,
    LATEST,
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    TimePosition,
)
from aerobee.spark.source.plan import checked
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.offsets import Offsets, Position, Queue
    from aerobee.spark.options import ReadOptions

ASKED_FOR_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
"""Prefixes of the topics of groups; a pattern matches them only if it has the prefix, too."""
NAMED = 5
"""The most queues that an error names."""

log = logging.getLogger("aerobee.spark")


def topics_of(cluster: Cluster, options: ReadOptions) -> tuple[str, ...]:
    """The topics that the options name, or those that a pattern matches at the name server now.

    Raises: the errors of name servers.
    """
    if options.subscribe_pattern is not None:
        return matching(options.subscribe_pattern, cluster.topics())
    if options.assign is not None:
        return tuple(dict.fromkeys(queue.topic for queue in options.assign))
    return options.subscribe or ()


def check_expression(cluster: Cluster, queues: Sequence[Queue], options: ReadOptions) -> None:
    """Let the brokers check an expression before tasks are created for it.

    Raises: ConfigurationError, and the errors of brokers and connections.
    """
    if options.expression_type != "TAG":
        cluster.check_expression(
            options.group, queues, options.sub_expression, options.expression_type
        )


def check_brokers(wanted: tuple[str, ...] | int | None, there: Iterable[str]) -> None:
    """Check that the brokers of the option are among those with something to read.

    Raises: BrokerNotFoundError.
    """
    brokers = sorted(set(there))
    if isinstance(wanted, int):
        if len(brokers) >= wanted:
            return
        missing = f"{wanted} brokers are asked for, and {len(brokers)} are there"
    else:
        absent = [name for name in wanted or () if name not in brokers]
        if not absent:
            return
        missing = f"broker {' and '.join(absent)} is not there"
    raise BrokerNotFoundError(
        f"option brokers: {missing}: {', '.join(brokers) or 'none'}. A broker that is down is in "
        "no route, and what it has would be missing"
    )


def matching(pattern: str, topics: Sequence[str]) -> tuple[str, ...]:
    """The topics whose whole names match, sorted, without system topics."""
    from aerobee.spark.topics import is_system

    whole = re.compile(pattern)
    plain = re.sub(r"^\^|\\(?=%)", "", pattern)
    return tuple(
        sorted(
            topic
            for topic in set(topics)
            if whole.fullmatch(topic)
            and not is_system(topic)
            and all(
                plain.startswith(prefix)
                for prefix in ASKED_FOR_PREFIXES
                if topic.startswith(prefix)
            )
        )
    )


def queues_of(
    cluster: Cluster,
    options: ReadOptions,
    missing: Callable[[str, RouteNotFoundError], object] | None = None,
) -> dict[Queue, tuple[str, ...]]:
    """The readable queues and the addresses to read each from (`host:port`, best first), sorted.

    `missing` is called with topics without a route, which then have no queues. Without it such a
    topic is an error, as is a queue of `assign` that does not exist, or a missing broker of
    `brokers`.
    Raises: RouteNotFoundError, BrokerNotFoundError, ConfigurationError, and the errors of name
    servers.
    """
    addresses: dict[Queue, tuple[str, ...]] = {}
    for topic in topics_of(cluster, options):
        try:
            queues = cluster.queues([topic], options.read_from)
        except RouteNotFoundError as error:
            if missing is None:
                raise
            missing(topic, error)
            continue
        if not queues and options.subscribe is not None and missing is None:
            raise ConfigurationError(
                f"option subscribe: topic {topic} has no queue that may be read; its permission "
                "must have 4, as 6 has: mqadmin updateTopicPerm"
            )
        addresses.update(queues)
    if options.assign is not None:
        absent = [queue for queue in options.assign if queue not in addresses]
        if absent and missing is None:
            raise ConfigurationError(f"assign: there is no {_named(absent)} that can be read")
        addresses = {queue: addresses[queue] for queue in options.assign if queue in addresses}
    if missing is None:
        check_brokers(options.brokers, (queue.broker for queue in addresses))
    return dict(sorted(addresses.items()))


def resolved(
    cluster: Cluster, position: Position, queues: Sequence[Queue], options: ReadOptions
) -> Offsets:
    """The offset of the position in each of these queues, sorted.

    Raises: ConfigurationError for queues that the position does not cover or know, and the
    errors of brokers and connections.
    """
    match position:
        case EarliestPosition():
            offsets = cluster.min_offsets(queues)
        case LatestPosition():
            offsets = cluster.max_offsets(queues)
        case CommittedPosition():
            offsets = _committed(cluster, position, queues, options)
        case ExplicitPosition():
            offsets = _at(cluster, position, queues)
        case TimePosition():
            offsets = _since(cluster, position, queues)
    return dict(sorted(offsets.items()))


def _committed(
    cluster: Cluster, position: CommittedPosition, queues: Sequence[Queue], options: ReadOptions
) -> Offsets:
    stored = cluster.committed(options.group, queues)
    known = {queue: offset for queue, offset in stored.items() if offset is not None}
    rest = [queue for queue in queues if queue not in known]
    if rest:
        known |= resolved(cluster, position.fallback, rest, options)
    return known


def _at(cluster: Cluster, position: ExplicitPosition, queues: Sequence[Queue]) -> Offsets:
    if open_ones := [queue for queue in queues if position.of(queue) is None]:
        raise ConfigurationError(
            f"the offsets name no place in {_named(open_ones)}; name every queue, with -2 for the "
            "earliest and -1 for the latest offset, or say one of these for the topic"
        )
    if strange := sorted(position.topics.keys() - {queue.topic for queue in queues}):
        raise ConfigurationError(f"the offsets name topic {strange[0]}, which is not read")
    if unknown := [queue for queue in position.offsets if queue not in set(queues)]:
        raise ConfigurationError(
            f"the offsets name {_named(unknown)}, which is not read or not there"
        )
    offsets = {
        queue: position.topics[queue.topic] for queue in queues if queue.topic in position.topics
    }
    offsets |= position.offsets
    by_word = {EARLIEST: cluster.min_offsets, LATEST: cluster.max_offsets}
    for word, ask in by_word.items():
        if wanted := [queue for queue, offset in offsets.items() if offset == word]:
            offsets |= ask(wanted)
    return offsets


def _since(cluster: Cluster, position: TimePosition, queues: Sequence[Queue]) -> Offsets:
    by_time: dict[int, list[Queue]] = {}
    for queue in queues:
        time_ms = position.time_of(queue)
        if time_ms is None:
            raise ConfigurationError(
                f"the timestamps say nothing of {queue}; give a time for each topic that is read"
            )
        by_time.setdefault(time_ms, []).append(queue)
    offsets: Offsets = {}
    for time_ms, same in by_time.items():
        offsets |= cluster.offsets_at(same, time_ms)
    if position.otherwise == "error":
        ends = cluster.max_offsets(queues)
        if old := [queue for queue in queues if offsets[queue] >= ends[queue]]:
            raise ConfigurationError(
                f"no message is as new as the starting timestamp in {_named(old)}; with "
                "startingOffsetsByTimestampStrategy=latest such queues begin at their end"
            )
    return offsets


def _named(queues: Sequence[Queue]) -> str:
    names = ", ".join(str(queue) for queue in queues[:NAMED])
    return names if len(queues) <= NAMED else f"{names} and {len(queues) - NAMED} more"


# ── The bounds of a batch ──


def bounds(
    cluster: Cluster, queues: Sequence[Queue], options: ReadOptions
) -> tuple[Offsets, Offsets]:
    """The start offset (inclusive) and the end offset (exclusive) of each queue, for batch reads of
    Spark and for `aerobee.arrow` alike.

    Raises: ConfigurationError for an end before the start and for expressions that a broker
    refuses, DataLossError for offsets that no longer exist (with failOnDataLoss; otherwise it is
    logged), and the errors of brokers and connections.
    """
    check_expression(cluster, queues, options)
    start = resolved(cluster, options.starting, queues, options)
    end = resolved(cluster, options.ending, queues, options)
    for queue in queues:
        if start[queue] > end[queue]:
            _refuse_backwards(options, queue, start[queue], end[queue])
            end[queue] = start[queue]
    least, most = cluster.min_offsets(queues), cluster.max_offsets(queues)
    offsets = checked(start, end, least, most, fail=options.fail_on_data_loss)
    for loss in offsets.losses:
        log.warning("%s; skipped", loss)
    return offsets.start, offsets.end


def _refuse_backwards(options: ReadOptions, queue: Queue, start: int, end: int) -> None:
    """Refuse explicit offsets whose end lies before their start. Raises: ConfigurationError."""
    if isinstance(options.starting, ExplicitPosition) and isinstance(
        options.ending, ExplicitPosition
    ):
        raise ConfigurationError(
            f"{queue}: startingOffsets {start} lies behind endingOffsets {end}; swap them"
        )
