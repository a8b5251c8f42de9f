"""One time of a member as the master: its lease, its sync set, and what may be acknowledged.

Reports of the members and moments in; what is confirmed goes to the log's side of the group, from
where slaves and consumers have it. Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from aerobee.broker.failover.sync_set import NOTHING, SyncSet
from aerobee.store.replication.transfer import Standing

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.failover.lease import Lease
    from aerobee.broker.failover.record import Record
    from aerobee.store.replication.group import Group
    from aerobee.store.replication.log_out import Follower


class Leadership:
    """From the moment at which this member leads on; its log takes no put yet."""

    def __init__(self, core: Core, group: Group, record: Record, lease: Lease) -> None:
        self._store, self._clock, self._rounds = core.store, core.clock, core.rounds
        self._group = group
        self._lease = lease
        now = core.clock.monotonic()
        end = core.store.counted_end
        least = core.config.failover.min_in_sync_replicas
        self.sync = SyncSet(record, end, min(group.confirmed, end), least, now)
        self._begin = end
        self.served = trio.Event()
        """All of the sync set have the log as it was when this began: clients may be served."""
        self.moved()

    def held(self) -> int:
        """The end of what may be acknowledged at this moment; −1: nothing may. Hot."""
        sync = self.sync
        if self._lease.may_answer(self._clock.monotonic()) and sync.may_acknowledge(sync.confirmed):
            return sync.confirmed
        return NOTHING

    def grown(self) -> None:
        """The own log may count further than before. Hot."""
        sync, end = self.sync, self._store.counted_end
        if end > sync.end:
            sync.appended(end, self._clock.monotonic())
            if sync.confirmed > self._group.confirmed:
                self._confirm()

    def heard(self, follower: Follower) -> None:
        """A slave has reported. Hot."""
        hello, transfer = follower.wire.hello, follower.transfer
        if hello is None or transfer.standing is not Standing.FOLLOWS or transfer.acknowledged < 0:
            return
        self.sync.reported(hello.member, transfer.acknowledged, self._clock.monotonic())
        self.moved()

    def moved(self) -> None:
        """More may be confirmed, or by another set: answer senders, and show consumers."""
        if self.sync.confirmed > self._group.confirmed:
            self._confirm()
            self._rounds.finish()
        if self.sync.may_acknowledge(self._begin):
            self.served.set()

    def _confirm(self) -> None:
        self._group.confirmed = self.sync.confirmed
        self._store.replicas.answer()

    def ready(self) -> list[int]:
        """The members that follow and have the tables: they copy them before they connect."""
        return [
            follower.wire.hello.member
            for follower in self._store.log_out.followers
            if follower.wire.hello is not None
            and follower.transfer.standing is Standing.FOLLOWS
            and follower.transfer.acknowledged >= 0
        ]
