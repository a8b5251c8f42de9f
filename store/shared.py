"""The values that the parts of one store share: the system, and the content of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trio

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.queues.dispatch import Dispatcher
    from aerobee.store.stats import StoreStats


@dataclass(frozen=True, slots=True)
class Runtime:
    """System calls, time, counters: used by every part."""

    disk: Disk
    clock: Clock
    stats: StoreStats


@dataclass(frozen=True, slots=True)
class Contents:
    """The log, the queues that follow it, and dispatch, which feeds them."""

    commit_log: CommitLog
    queues: ConsumeQueues
    dispatcher: Dispatcher
    between_flushes: trio.Lock
    """Held while queue files and the checkpoint are written, and while whole queues are removed."""
