"""Whether the log of a slave is the begin of its master's: the last record of one, compared.

Records hold where they lie, when they were stored and what number they have in their queue. So two
logs with the same last record have the same bytes in front of it. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

EMPTY_STORE = (
    "stop this broker, keep its store directory aside, and start it with an empty one, or with a"
    " copy of the master's"
)
REMEDY = (
    "`aerobee ha follow HOST:PORT --master M --cut` keeps what only this broker has in a directory,"
    " and has its next start take it off the log; or " + EMPTY_STORE
)
"""The remedy where the logs differ."""


class Tail(NamedTuple):
    """The end of a slave's log, and its last record."""

    end: int
    physical_offset: int = -1
    """−1: it has no record yet."""
    record: bytes = b""


class MasterLog(NamedTuple):
    """The master's log: its ends, and what begins where the slave's last record does, if any."""

    begin: int
    end: int
    record: bytes | None = None


def deleted(tail: Tail, master: MasterLog) -> str:
    """Why the master cannot send what comes next, in words; empty: it can."""
    if not tail.end or tail.end >= master.begin:
        return ""
    return (
        f"this log ends at {tail.end}, and the master has deleted everything before"
        f" {master.begin}: {EMPTY_STORE}"
    )


def difference(tail: Tail, master: MasterLog) -> str:
    """How the slave's log differs from the master's, in words; empty: it is the begin of it."""
    if tail.end > master.end:
        return (
            f"this log ends at {tail.end}, {tail.end - master.end} bytes behind the end of the"
            f" master's, {master.end}: the master never had them, or has lost them: {REMEDY}"
        )
    if tail.physical_offset < 0 or tail.record == master.record:
        return ""
    other = "no record" if master.record is None else "another record"
    return f"the master has {other} at offset {tail.physical_offset}: {REMEDY}"
