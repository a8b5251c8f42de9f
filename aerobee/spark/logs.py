"""Lines that say when, how grave and of which query: for the processes of Spark that run Python.

Spark sets up no logging in them, and a library tells nothing where nobody does: messages that were
skipped because they are gone would not be heard of. What is set up already, by a program or by
Spark, stays as it is.
"""

from __future__ import annotations

import logging

from pyspark import TaskContext

__all__ = ["set_up"]

FORMAT = "%(asctime)s %(levelname)s %(name)s%(of_query)s: %(message)s"
SHORT = 8
"""Digits of a query's id that are told; Spark's own lines and its checkpoint have all."""
PROPERTIES = (
    ("query", "sql.streaming.queryId"),
    ("batch", "streaming.sql.batchId"),
)


def set_up() -> None:
    """Have the lines of `aerobee` written to stderr, once for a process; each knows its task."""
    ours = logging.getLogger("aerobee")
    there = (*ours.handlers, *logging.getLogger().handlers)
    # The library's own NullHandler tells nobody.
    if any(not isinstance(one, logging.NullHandler) for one in there):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(_with_query)
    ours.addHandler(handler)


def _with_query(line: logging.LogRecord) -> bool:
    line.of_query = of_query()
    return True


def of_query() -> str:
    """Query, batch, stage and partition of the task that this thread runs; empty outside of one."""
    context = TaskContext.get()
    if context is None:
        return ""
    said = {name: context.getLocalProperty(key) for name, key in PROPERTIES}
    known = [f"{name} {text[:SHORT]}" for name, text in said.items() if text]
    known += [f"stage {context.stageId()}", f"partition {context.partitionId()}"]
    return f" [{', '.join(known)}]"
