"""Log lines with time, level and query, for the Python processes of Spark.

Spark configures no logging in them, and without a configuration warnings of a library are lost, for
example about messages that were skipped because they are deleted. An existing configuration, by a
program or by Spark, stays as it is.
"""

from __future__ import annotations

import logging

from pyspark import TaskContext

FORMAT = "%(asctime)s %(levelname)s %(name)s%(of_query)s: %(message)s"
SHORT = 8
"""The digits of a query's id in log lines; Spark's own lines and its checkpoint have all."""
PROPERTIES = (
    ("query", "sql.streaming.queryId"),
    ("batch", "streaming.sql.batchId"),
)


def set_up() -> None:
    """Write the log of `aerobee` to stderr, set up once per process; each line names its task."""
    ours = logging.getLogger("aerobee")
    there = (*ours.handlers, *logging.getLogger().handlers)
    # The library's own NullHandler does not count.
    if any(not isinstance(handler, logging.NullHandler) for handler in there):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(_with_query)
    ours.addHandler(handler)


def _with_query(line: logging.LogRecord) -> bool:
    line.of_query = of_query()
    return True


def of_query() -> str:
    """The query, batch, stage and partition of this thread's task; empty outside of one."""
    context = TaskContext.get()
    if context is None:
        return ""
    texts = {name: context.getLocalProperty(key) for name, key in PROPERTIES}
    known = [f"{name} {text[:SHORT]}" for name, text in texts.items() if text]
    known += [f"stage {context.stageId()}", f"partition {context.partitionId()}"]
    return f" [{', '.join(known)}]"
