"""Notifies the members of a consumer group that it changed, so that they rebalance.

Each change sends NOTIFY_CONSUMER_IDS_CHANGED to all members that the group has then; changes that
come before it is sent share it. Every member answers by asking for the list of members, so
notifying N members costs N lists of N names. Therefore the members of a large group are notified a
few at a time, with pauses that grow with it: thousands that join one by one share the rounds, and a
small group is notified within the same millisecond. Source: remoting §3.9
(DefaultConsumerIdsChangeListener).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers.client import NotifyConsumerIdsChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.clients import ClientConnection, ClientTable

SLICE_MEMBERS: Final = 32
"""Members notified in one step before others get their turn: a quarter of a millisecond, or 5 where
all of their connections turn out to be broken and are closed."""
NOTIFY_S: Final = 0.000_1
"""The pause for each member that was notified, and …"""
NAME_S: Final = 0.000_000_06
"""… for each name in the list that it will ask for: 10,000 members know of a change within 7 s."""


def rest_s(notified: int, members: int) -> float:
    """The pause after notifying `notified` of the members of a group."""
    return notified * (NOTIFY_S + NAME_S * members)


class Round:
    """A group whose members are being notified, or the pause after that."""

    __slots__ = ("again", "group", "left", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.left: deque[ClientConnection] = deque()
        """The members still to be notified in this round."""
        self.size = 0
        """Members when the round began."""
        self.again = True
        """Whether the group has changed since the round began."""


class MemberChanges:
    """The service. `changed` may be called from anywhere in the loop; `flush` sends what is queued.

    Invariant: a changed group is in `_rounds` until a round that began later has notified all
    members.
    """

    def __init__(
        self,
        clients: ClientTable,
        *,
        enabled: Callable[[], bool] = lambda: True,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self._clients = clients
        self._enabled = enabled
        self._flush = flush
        self._rounds: dict[str, Round] = {}
        self._due: list[tuple[float, int, Round]] = []
        self._numbers = count()
        self._wanted = trio.Event()

    def changed(self, group: str) -> None:
        """A member was added or removed, or the topics changed."""
        known = self._rounds.get(group)
        if known is not None:
            known.again = True
            return
        self._rounds[group] = current = Round(group)
        heappush(self._due, (0.0, next(self._numbers), current))
        self._wanted.set()

    def notify_due(self, now: float) -> float | None:
        """Notify a slice of the groups that are due; returns the time of the next one, None: never.

        `now`: seconds of a monotonic clock.
        """
        due = self._due
        room = SLICE_MEMBERS
        while room > 0 and due and due[0][0] <= now:
            _, _, current = heappop(due)
            notified = self._notify_some(current, room)
            # A group without members has a cost, too.
            room -= max(notified, 1)
            if notified or current.left:
                heappush(due, (now + rest_s(notified, current.size), next(self._numbers), current))
            else:
                del self._rounds[current.group]
        return due[0][0] if due else None

    def _notify_some(self, current: Round, room: int) -> int:
        """Notify some members; returns how many, 0 when the round is over."""
        left = current.left
        if not left and current.again:
            current.again = False
            entry = self._clients.group(current.group)
            if entry is not None and self._enabled():
                left.extend(entry.connections())
            current.size = len(left)
        if not left:
            return 0
        header = NotifyConsumerIdsChanged(consumer_group=current.group)
        notified = min(room, len(left))
        for _ in range(notified):
            left.popleft().notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        return notified

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Notify until cancelled."""
        task_status.started()
        while True:
            self._wanted = trio.Event()
            next_turn = self.notify_due(trio.current_time())
            self._flush()
            await trio.lowlevel.checkpoint()
            if next_turn is None:
                await self._wanted.wait()
            elif next_turn > trio.current_time():
                with trio.move_on_at(next_turn):
                    await self._wanted.wait()
