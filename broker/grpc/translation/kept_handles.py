"""Which handle a message has now, by the one that its client got.

Messages that were received with auto renewal are hidden again and again by the broker, and a client
may change how long a message is hidden: each gives another handle, and the client may still come
with any that it has got. A kept handle is that of the client and account that received the message,
for its group and topic; a handle that anybody else brings counts as it is. Messages that a client
has changed are hidden by nobody else, and take no room from the others. Pure. Source: grpc §2.6
(DefaultReceiptHandleManager).
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aerobee.broker.grpc.translation.handles import check_current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.grpc.translation.handles import Handle

HANDLES_MAX: Final = 200_000
"""Messages that are hidden again, some 600 bytes each, and as many that clients have changed. Of
others the first are delivered again when their time is over, and the second have one good handle.
"""
HANDLES_OF_CLIENT_MAX: Final = 10_000
"""Of both, messages of one group and topic that one client works on."""
BEFORE_MS: Final = 10_000
"""So long before a message would be visible it is hidden again."""
RENEWALS_MS: Final = tuple(60_000 * minutes for minutes in (1, 3, 5, 10, 30, 60))
"""For how long, the first time, the second, and so on."""
RENEWED_FOR_MS: Final = 3 * 3_600_000
"""After that a message is delivered to another consumer."""
FAILURES_MAX: Final = 3
LOOK_STEP: Final = 256
"""Handles that are looked at in one step."""


class Connection(Protocol):
    """A connection."""

    @property
    def closed(self) -> bool:
        """Whether it is over."""


class Holder(NamedTuple):
    """A client as it received messages: renewals are made with the rights of its account."""

    client_id: str
    access_key: str
    """The account that it claims to be; the gate has checked the claim, where there is a gate."""
    accounts: frozenset[str]
    """The account that the gate has seen of it."""
    host: bytes
    """Its address as records have it."""
    connection: Connection
    """Where it received them: who has no stream is there for as long as its connection is."""

    @property
    def client(self) -> Client:
        """The key of its handles."""
        return self.client_id, self.access_key


class KeptHandle:
    """One message that somebody works on."""

    __slots__ = (
        "current",
        "failures",
        "first",
        "group",
        "holder",
        "over_ms",
        "renewals",
        "topic",
    )

    def __init__(self, holder: Holder, group: str, topic: str, handle: Handle) -> None:
        self.holder = holder
        self.group = group
        self.topic = topic
        """As the client calls it."""
        self.first = handle
        self.current = handle
        self.over_ms = handle.visible_ms
        """The last moment at which any of its handles looks as if it were good."""
        self.renewals = 0
        self.failures = 0

    @property
    def place(self) -> int:
        """The place of the message, which all of its handles name."""
        return self.first.physical_offset

    @property
    def look_ms(self) -> int:
        """When it is to be hidden again."""
        return self.current.visible_ms - BEFORE_MS

    def is_of(self, handle: Handle) -> bool:
        """Whether a handle is one of this message since it was received, and not of a delivery
        before.
        """
        return handle.receipt.pop_time >= self.first.receipt.pop_time

    def next_ms(self, now_ms: int) -> int | None:
        """For how long it is to be hidden from now on; None: it is not any more."""
        if self.failures >= FAILURES_MAX or now_ms - self.first.receipt.pop_time > RENEWED_FOR_MS:
            return None
        return RENEWALS_MS[min(self.renewals, len(RENEWALS_MS) - 1)]

    def became(self, handle: Handle) -> None:
        """Take the handle of a change."""
        self.current = handle
        self.over_ms = max(self.over_ms, handle.visible_ms)
        self.renewals += 1
        self.failures = 0


class Work:
    """The messages of one group and topic that one client works on, by their places."""

    __slots__ = ("changed", "ended", "group", "handles", "look_ms", "topic", "visible")

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.handles: dict[int, KeptHandle] = {}
        """Messages that the broker hides again by itself."""
        self.changed: dict[int, KeptHandle] = {}
        """Messages that the client has changed, the oldest change first."""
        self.look_ms: float = inf
        """Nothing is to be done about any message before."""
        self.ended = False
        self.visible = False
        """Whether nobody works on them any more, and they are to be visible again."""


Client = tuple[str, str]
"""Client id and access key."""


class KeptHandles:
    """All of them, by client, then by group and topic.

    No call here takes long: work that grows with the number of handles is an iterator, between
    whose items others may run. Where an item is None, the step has found nothing.
    """

    def __init__(
        self, most: int = HANDLES_MAX, *, most_of_client: int = HANDLES_OF_CLIENT_MAX
    ) -> None:
        self._most, self._most_of_client = most, most_of_client
        self._clients: dict[Client, dict[tuple[str, str], Work]] = {}
        self._left: deque[Work] = deque()
        """Work that has ended, whose handles are not forgotten yet."""
        self._count = self._changed = 0

    def __len__(self) -> int:
        return self._count + self._changed

    def _work(self, client: Client, group: str, topic: str) -> Work:
        works = self._clients.setdefault(client, {})
        work = works.get((group, topic))
        if work is None:
            work = works[group, topic] = Work(group, topic)
        return work

    def keep(self, holder: Holder, group: str, topic: str, handle: Handle) -> KeptHandle | None:
        """Keep the handle of a message that is to be hidden again; None: there is no room."""
        work = self._work(holder.client, group, topic)
        kept = KeptHandle(holder, group, topic, handle)
        # Delivered in order once more, it is the same message.
        self._remove(work, kept.place)
        if self._count >= self._most or len(work.handles) >= self._most_of_client:
            return None
        self._count += 1
        work.handles[kept.place] = kept
        work.look_ms = min(work.look_ms, kept.look_ms)
        return kept

    def change(self, holder: Holder, group: str, topic: str, before: Handle, after: Handle) -> None:
        """Take what a client has changed: it says itself for how long the message is hidden, and
        may come with an older handle once more.
        """
        work = self._work(holder.client, group, topic)
        kept = _at(work, before) or KeptHandle(holder, group, topic, before)
        if not kept.is_of(before):
            return  # The message was delivered once more since.
        kept.became(after)
        self._remove(work, kept.place)
        if len(work.changed) >= self._most_of_client or (
            self._changed >= self._most and work.changed
        ):
            self._remove(work, next(iter(work.changed)))
        if self._changed < self._most:
            self._changed += 1
            work.changed[kept.place] = kept
            work.look_ms = min(work.look_ms, kept.over_ms + 1)

    def _remove(self, work: Work, place: int) -> None:
        self._count -= work.handles.pop(place, None) is not None
        self._changed -= work.changed.pop(place, None) is not None

    def find(self, client: Client, group: str, topic: str, handle: Handle) -> KeptHandle | None:
        """The one for a handle that this client has."""
        work = self._clients.get(client, {}).get((group, topic))
        kept = None if work is None else _at(work, handle)
        return kept if kept is not None and kept.is_of(handle) else None

    def current(
        self, client: Client, group: str, topic: str, handle: Handle, now_ms: int
    ) -> Handle:
        """The handle that a message has now. Raises: RpcRefused when its time is over."""
        kept = self.find(client, group, topic, handle)
        current = handle if kept is None else kept.current
        check_current(current, now_ms)
        return current

    def drop(self, client: Client, group: str, topic: str, handle: Handle) -> None:
        """The message is acknowledged, or dead."""
        if self.find(client, group, topic, handle) is not None:
            self._remove(self._clients[client][group, topic], handle.physical_offset)

    def of_client(self, client: Client) -> list[KeptHandle]:
        """The messages that are hidden again for a client."""
        return [
            kept
            for work in self._clients.get(client, {}).values()
            for kept in work.handles.values()
        ]

    def due(self, now_ms: int) -> Iterator[KeptHandle | None]:
        """The messages to be hidden again now. Messages whose time is over are dropped."""
        for client, works in list(self._clients.items()):
            for place, work in list(works.items()):
                if work.look_ms <= now_ms:
                    yield from self._look(work, now_ms)
                if not (work.handles or work.changed) and works.get(place) is work:
                    del works[place]
            if not works and self._clients.get(client) is works:
                del self._clients[client]
            yield None

    def _look(self, work: Work, now_ms: int) -> Iterator[KeptHandle | None]:
        work.look_ms, next_ms = inf, inf
        for number, (place, kept) in enumerate(list(work.handles.items()), 1):
            if number % LOOK_STEP == 0:
                yield None
            if work.ended:
                return
            if work.handles.get(place) is not kept:  # acknowledged meanwhile
                continue
            left_ms = kept.current.visible_ms - now_ms
            if left_ms < 0:
                self._remove(work, place)
                continue
            if left_ms <= BEFORE_MS:
                yield kept
            next_ms = min(next_ms, kept.look_ms)
        for number, (place, kept) in enumerate(list(work.changed.items()), 1):
            if number % LOOK_STEP == 0:
                yield None
            if work.ended:
                return
            if work.changed.get(place) is not kept:
                continue
            if kept.over_ms < now_ms:
                self._remove(work, place)
            else:
                next_ms = min(next_ms, kept.over_ms + 1)
        work.look_ms = min(work.look_ms, next_ms)

    # ── The end of work ──

    def client_gone(self, client: Client) -> None:
        """Nobody works on the messages of a client any more."""
        for work in self._clients.pop(client, {}).values():
            self._end(work)

    def leave(self, kept: KeptHandle) -> None:
        """A message is to be visible again, as are those of a client that has gone."""
        work = Work(kept.group, kept.topic)
        work.handles[kept.place] = kept
        self._count += 1
        self._end(work)

    def _end(self, work: Work) -> None:
        work.ended = work.visible = True
        self._left.append(work)

    def forget_all(self) -> None:
        """Forget all messages: others work on them, at another broker."""
        self._delete(lambda _: True)

    def delete_group(self, group: str) -> None:
        """Forget the messages of a deleted group."""
        self._delete(lambda work: work.group == group)

    def delete_topic(self, topic: str) -> None:
        """Forget the messages of a deleted topic."""
        self._delete(lambda work: work.topic == topic)

    def _delete(self, is_deleted: Callable[[Work], bool]) -> None:
        for work in filter(is_deleted, self._left):
            work.visible = False
        for works in self._clients.values():
            for place in [place for place, work in works.items() if is_deleted(work)]:
                work = works.pop(place)
                work.ended = True
                self._left.append(work)

    def left(self) -> Iterator[KeptHandle | None]:
        """Forget the handles of work that has ended; those whose messages are to be visible."""
        number = 0
        while self._left:
            work = self._left[0]
            number += 1
            if work.handles:
                _, kept = work.handles.popitem()
                self._count -= 1
                if work.visible:
                    yield kept
                    continue
            elif work.changed:
                work.changed.popitem()
                self._changed -= 1
            else:
                self._left.popleft()
            if number % LOOK_STEP == 0:
                yield None


def _at(work: Work, handle: Handle) -> KeptHandle | None:
    """The message that a handle names, also where it is of a delivery before."""
    place = handle.physical_offset
    return work.handles.get(place) or work.changed.get(place)
