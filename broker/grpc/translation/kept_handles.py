"""Which handle a message has now, by the one that its client got.

Messages that were received with auto renewal are hidden again and again by the broker, and a client
may change how long a message is hidden: each gives another handle, and the client may still come
with an older one. Pure. Source: grpc §2.6 (DefaultReceiptHandleManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.grpc.translation.handles import check_current, read_handle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.grpc.translation.handles import Handle

HANDLES_MAX: Final = 200_000
"""Messages whose handles are kept, some 600 bytes each. Others are delivered again when their time
is over, and a change of them counts for the newest handle alone."""
BEFORE_MS: Final = 10_000
"""So long before a message would be visible it is hidden again."""
RENEWALS_MS: Final = tuple(60_000 * minutes for minutes in (1, 3, 5, 10, 30, 60))
"""For how long, the first time, the second, and so on."""
RENEWED_FOR_MS: Final = 3 * 3_600_000
"""After that a message is delivered to another consumer."""
FAILURES_MAX: Final = 3


class KeptHandle:
    """One message that somebody works on."""

    __slots__ = (
        "client_id",
        "current",
        "failures",
        "first",
        "group",
        "renewals",
        "renewed",
        "topic",
    )

    def __init__(
        self, client_id: str, group: str, topic: str, handle: Handle, *, renewed: bool
    ) -> None:
        self.client_id = client_id
        self.group = group
        self.topic = topic
        """As the client calls it."""
        self.first = handle
        self.current = handle
        self.renewed = renewed
        """Whether the broker hides it again by itself."""
        self.renewals = 0
        self.failures = 0

    @property
    def key(self) -> tuple[str, str]:
        """Group and first handle."""
        return self.group, self.first.text()

    def next_ms(self, now_ms: int) -> int | None:
        """For how long it is to be hidden from now on; None: it is not any more."""
        if self.failures >= FAILURES_MAX or now_ms - self.first.receipt.pop_time > RENEWED_FOR_MS:
            return None
        return RENEWALS_MS[min(self.renewals, len(RENEWALS_MS) - 1)]

    def became(self, handle: Handle) -> None:
        """Take the handle of a change."""
        self.current = handle
        self.renewals += 1
        self.failures = 0


class KeptHandles:
    """All of them, by group and the handle that the client got first."""

    def __init__(self, most: int = HANDLES_MAX) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], KeptHandle] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(
        self, client_id: str, group: str, topic: str, handle: Handle, *, renewed: bool
    ) -> KeptHandle | None:
        """Keep the handle of a message; None: there is no room."""
        if len(self._kept) >= self._most:
            return None
        kept = KeptHandle(client_id, group, topic, handle, renewed=renewed)
        self._kept[kept.key] = kept
        return kept

    def find(self, group: str, text: str) -> KeptHandle | None:
        """The message that is kept for the handle of a client."""
        return self._kept.get((group, text))

    def current(self, group: str, text: str, now_ms: int) -> Handle:
        """The handle that a message has now. Raises: RpcRefused when it is unreadable or over."""
        kept = self.find(group, text)
        handle = read_handle(text) if kept is None else kept.current
        check_current(handle, now_ms)
        return handle

    def drop(self, group: str, text: str) -> None:
        """The message is acknowledged, or dead."""
        self._kept.pop((group, text), None)

    def due(self, now_ms: int) -> Iterator[KeptHandle]:
        """The messages to be hidden again now. A message whose time is over is dropped; others may
        run at each step.
        """
        for key, kept in list(self._kept.items()):
            left_ms = kept.current.visible_ms - now_ms
            if left_ms < 0:
                self._kept.pop(key, None)
            elif kept.renewed and left_ms <= BEFORE_MS:
                yield kept

    def of_client(self, client_id: str) -> list[KeptHandle]:
        """The messages that are hidden again for a client."""
        return [
            handle
            for handle in self._kept.values()
            if handle.renewed and handle.client_id == client_id
        ]

    def delete_group(self, group: str) -> None:
        """Forget those of a deleted group."""
        for key in [key for key in self._kept if key[0] == group]:
            del self._kept[key]

    def delete_topic(self, topic: str) -> None:
        """Forget those of a deleted topic."""
        for key in [key for key, kept in self._kept.items() if kept.topic == topic]:
            del self._kept[key]
