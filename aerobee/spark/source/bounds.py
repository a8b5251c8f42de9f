"""The bounds of a batch read in each queue: what the options ask for, within what the queues have.

For batch reads of Spark and for `aerobee.arrow` alike.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import ConfigurationError
from aerobee.spark.offsets import ExplicitPosition
from aerobee.spark.source.plan import checked
from aerobee.spark.source.positions import check_expression, resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.spark.brokers import Cluster
    from aerobee.spark.offsets import Offsets, Queue
    from aerobee.spark.options import ReadOptions

log = logging.getLogger("aerobee.spark")


def bounds(
    cluster: Cluster, queues: Sequence[Queue], options: ReadOptions
) -> tuple[Offsets, Offsets]:
    """The start offset (inclusive) and the end offset (exclusive) of each queue.

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
