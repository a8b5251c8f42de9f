"""Tells the members of a consumer group that it changed, so that they share the queues out again.

Each change is told to everybody who is in the group then, by NOTIFY_CONSUMER_IDS_CHANGED; changes
that come before a group is told are told together. Every member answers by asking for the list of
all, so that telling N members costs N lists of N names. A large group is therefore told a few
members at a time, with rests that grow with it: thousands that join one by one share the rounds,
and a small group hears of a change within the same millisecond.
Source: remoting §3.9 (DefaultConsumerIdsChangeListener).
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

__all__ = ["SLICE_MEMBERS", "MemberChanges", "rest_s"]

SLICE_MEMBERS: Final = 64
"""Members told in one go, about half a millisecond, before others get their turn."""
TELL_S: Final = 0.000_1
"""Rest for each member that was told, and …"""
NAME_S: Final = 0.000_000_06
"""… for each name in the list that it will ask for: 10,000 members hear of a change within 7 s."""


def rest_s(told: int, members: int) -> float:
    """How long a group of so many members is left alone after so many of them were told."""
    return told * (TELL_S + NAME_S * members)


class Telling:
    """A group that is being told, or rests from it."""

    __slots__ = ("again", "group", "left", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.left: deque[ClientConnection] = deque()
        """Who is still to be told in this round."""
        self.size = 0
        """Members when the round began."""
        self.again = True
        """Whether it has changed since the round began."""


class MemberChanges:
    """The service. `changed` may be called from anywhere in the loop; `flush` sends what it tells.

    Law: a group that changed is in `_telling` until a round that began later has told everybody.
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
        self._telling: dict[str, Telling] = {}
        self._due: list[tuple[float, int, Telling]] = []
        self._numbers = count()
        self._wanted = trio.Event()

    def changed(self, group: str) -> None:
        """A member came or left, or the topics changed."""
        known = self._telling.get(group)
        if known is not None:
            known.again = True
            return
        self._telling[group] = telling = Telling(group)
        heappush(self._due, (0.0, next(self._numbers), telling))
        self._wanted.set()

    def tell(self, now: float) -> float | None:
        """Tell a slice of the groups whose turn has come; when the next turn is, None: never.

        `now`: seconds of a clock that never goes back.
        """
        due = self._due
        room = SLICE_MEMBERS
        while room > 0 and due and due[0][0] <= now:
            _, _, telling = heappop(due)
            told = self._tell_some(telling, room)
            # A group without anybody costs a little as well.
            room -= max(told, 1)
            if told or telling.left:
                heappush(due, (now + rest_s(told, telling.size), next(self._numbers), telling))
            else:
                del self._telling[telling.group]
        return due[0][0] if due else None

    def _tell_some(self, telling: Telling, room: int) -> int:
        """How many were told; 0 when the group has heard of everything."""
        left = telling.left
        if not left and telling.again:
            telling.again = False
            entry = self._clients.group(telling.group)
            if entry is not None and self._enabled():
                left.extend(entry.connections())
            telling.size = len(left)
        if not left:
            return 0
        header = NotifyConsumerIdsChanged(consumer_group=telling.group)
        told = min(room, len(left))
        for _ in range(told):
            left.popleft().notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        return told

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Tell until cancelled."""
        task_status.started()
        while True:
            self._wanted = trio.Event()
            next_turn = self.tell(trio.current_time())
            self._flush()
            await trio.lowlevel.checkpoint()
            if next_turn is None:
                await self._wanted.wait()
            elif next_turn > trio.current_time():
                with trio.move_on_at(next_turn):
                    await self._wanted.wait()
