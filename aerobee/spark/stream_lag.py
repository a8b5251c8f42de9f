"""The lag of a stream, computed from Spark's progress reports. Pure.

Spark gives Python sources no metrics of their own; its reports have the end of the last batch, and
the ends of the queues when that was planned.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aerobee.errors import ConfigurationError
from aerobee.spark.offsets import from_nested

if TYPE_CHECKING:
    from aerobee.spark.offsets import Offsets

__all__ = ["lag_of"]


def lag_of(progress: Any) -> dict[str, int]:
    """The backlog of each topic, from a query's `lastProgress` or a listener's `progress`.

    Empty before the first batch, and with PySpark before 4.2, which does not query the ends.
    """
    document = progress if isinstance(progress, dict) else json.loads(progress.json)
    backlog: dict[str, int] = {}
    for source in document.get("sources", ()):
        ends, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
        for queue, most in latest.items():
            waits = max(0, most - ends.get(queue, 0))
            backlog[queue.topic] = backlog.get(queue.topic, 0) + waits
    return backlog


def _offsets(offsets: Any) -> Offsets:
    """The offsets of a source in a report: a mapping, or its JSON text; else none.

    A query may have other sources, such as Kafka's, with offsets of another form.
    """
    table = offsets
    if isinstance(offsets, str):
        # Without offsets PySpark 4.1 says "None" or "" here.
        with suppress(ValueError):
            table = json.loads(offsets)
    try:
        return from_nested(table)
    except ConfigurationError:
        return {}
