"""An empty master does not take the place of a slave that has the messages.

A master that has lost its disk would come back with nothing, clients would send to it, and there
would be two histories under one name. So before it serves anybody, it asks the name servers who
else has its name, and those how long their logs are. A SYNC_MASTER may have lost the end of its log
as well, by a power cut under ASYNC_FLUSH: sends that it acknowledged are on its slave.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.broker.replication.master_calls import NoAnswer, asked, log_of, own_tail
from aerobee.broker.replication.other_masters import ASK_S, members_of
from aerobee.store.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.broker.replication.tails import Tail

log = structlog.stdlib.get_logger(__name__)


class EmptyMasterCheck:
    """A service that ends before the broker serves: a check of the start."""

    def __init__(self, core: Core, name_servers: Sequence[str], connect: Connect) -> None:
        self._core = core
        self._name_servers = name_servers
        self._connect = connect

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check, and end. Raises: StoreRefused when a slave has what this broker lacks."""
        store, config = self._core.store, self._core.config
        asks = config.needed_slaves or not store.commit_log.max_offset
        if asks and not config.replication.force_empty_master:
            tail = await own_tail(store)
            for address in self._name_servers:
                members = await members_of(self._core, address, self._connect)
                for number, slave in members.items():
                    if number:
                        await self._refuse_beside(number, slave, tail)
        task_status.started()

    async def _refuse_beside(self, number: int, address: str, tail: Tail) -> None:
        """Refuse the start if this slave has messages, or more of them. Raises: StoreRefused."""
        try:
            theirs = await asked(self._connect, address, partial(log_of, tail=tail), ASK_S)
        except NoAnswer as silent:
            log.warning("replication.slaves_unknown", address=address, reason=str(silent))
            return
        root, slave = self._core.store.root, f"broker {number} of this name, at {address}"
        if theirs.end and not tail.end:
            raise StoreRefused(
                f"{root} is empty, and {slave}, has a log up to {theirs.end}: an empty master would"
                " begin another history. Copy the slave's store directory, or make the slave the"
                " master; to begin anew all the same set forceEmptyMaster: true"
            )
        # With another record there, it is another history, and nothing that was lost here.
        if tail.end < theirs.end and tail.record and tail.record == theirs.record:
            raise StoreRefused(
                f"the log in {root} ends at {tail.end}, and that of {slave}, has the same and goes"
                f" on to {theirs.end}: sends that were acknowledged would be lost. Make that broker"
                f" the master, by `aerobee ha promote {address}`, and start this one with"
                " brokerRole: SLAVE and a brokerId of its own; to give them up all the same set"
                " forceEmptyMaster: true for one start"
            )
