"""What the broker itself puts into the log: messages on their way to another queue.

A delayed message, a timer, half of a transaction: the hooks turn where they go before they are
stored. What comes back from there goes on with `put_again`, whose properties are stored as they
came and are not checked again. What was accepted once stays deliverable: a limit that was lowered
since is no reason to refuse it.
Source: semantics §6 to §10 (HookUtils, MessageStoreConfig put hooks).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import trio

from aerobee.store.format.properties import encode
from aerobee.store.format.tags import tags_code
from aerobee.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from aerobee.store.clock import Clock
    from aerobee.store.format.record import MessageDraft
    from aerobee.store.message_store import MessageStore

    Hook: TypeAlias = Callable[[MessageDraft, dict[str, str], int, bool], None]

__all__ = ["Hook", "Puts"]

CLOSED: Final = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)


class Puts:
    """The way into the log for everything but an ordinary send. Who puts counts."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        finish_round: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self.finish_round = finish_round
        """To be called by a service after its puts: dispatch, wake held pulls, send answers."""
        self.hooks: list[Hook] = []
        """In order: each may turn topic, queue, properties and tags code of a draft, or refuse it.

        Called with draft, its properties, the store timestamp that it will get, in ms, and whether
        it was accepted before.
        """
        self.closed = False

    def close(self) -> None:
        """Refuse from now on, because the tables are saved for the last time.

        What was still copied after that, the next start would copy again.
        """
        self.closed = True

    def put(
        self, draft: MessageDraft, properties: dict[str, str], *, accepted: bool = False
    ) -> PutResult:
        """Store a message through the hooks. Raises: Refused, by a hook; nothing is stored then."""
        if self.closed:
            return CLOSED
        now_ms = self._next_timestamp()
        draft.tags_code = tags_code(properties.get("TAGS"))
        for hook in self.hooks:
            hook(draft, properties, now_ms, accepted)
        draft.properties = encode(properties).encode()
        return self._store.put(draft, now_ms, accepted=accepted)

    def validate(self, draft: MessageDraft, properties: dict[str, str]) -> None:
        """Run the hooks over a copy of a message that is put later. Raises: Refused, by a hook."""
        if self.hooks:
            draft, properties = copy(draft), dict(properties)
            for hook in self.hooks:
                hook(draft, properties, self._next_timestamp(), False)

    def put_as_is(self, draft: MessageDraft) -> PutResult:
        """Store a message whose topic and queue are settled: no hook sees it."""
        return CLOSED if self.closed else self._store.put(draft)

    def put_again(self, draft: MessageDraft) -> PutResult:
        """Store a message once more that was accepted before, where it goes next."""
        return CLOSED if self.closed else self._store.put(draft, accepted=True)

    def _next_timestamp(self) -> int:
        """The store timestamp of the next record: never before that of the last one."""
        return max(self._clock.now_ms(), self._store.commit_log.last_store_timestamp)

    async def durable(self) -> None:
        """Wait until everything put so far is on disk. Raises: OSError when it cannot be."""
        done = trio.Event()
        on_disk = True

        def reached(durable: bool) -> None:
            nonlocal on_disk
            on_disk = durable
            done.set()

        self._store.when_durable(self._store.commit_log.max_offset, reached)
        self._store.dispatch()
        await done.wait()
        if not on_disk:
            raise OSError("the log did not reach the disk in time")
