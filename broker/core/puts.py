"""Puts of the broker itself: messages that it stores on behalf of clients, in their next queue.

A delayed message, a timer, half of a transaction: put hooks redirect it before it is stored. When
it is due, `put_again` stores it in its target, with its properties as they came and without the
checks of a send. A message that was accepted once stays deliverable: a limit that was lowered since
does not refuse it, and where its topic has fewer queues since, it gets into one of those; only
where its topic was deleted since (`is_deleted`) it is not to be stored.
Source: semantics §6 to §10 (HookUtils, MessageStoreConfig put hooks).
"""

from __future__ import annotations

from copy import copy
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from aerobee.store.format.properties import encode
from aerobee.store.format.tags import tags_code
from aerobee.store.results import UNSTORABLE, PutOutcome, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from aerobee.broker.core.drafts import Target
    from aerobee.store.clock import Clock
    from aerobee.store.format.copies import StoredMessage
    from aerobee.store.format.record import MessageDraft, Record
    from aerobee.store.message_store import MessageStore

    Hook: TypeAlias = Callable[[MessageDraft, dict[str, str], int, bool], None]

_target = attrgetter("target")
CLOSED: Final = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
PUT_OK: Final = PutStatus.PUT_OK
NOWHERE: Final = PutResult(PutStatus.MESSAGE_ILLEGAL)


class Copy(NamedTuple):
    """A stored message and its next queue; None: it gets into none, and `reason` may say why."""

    message: StoredMessage
    properties: bytes
    target: Target | None
    reason: str = ""


class Puts:
    """Stores everything but ordinary sends, and runs the put hooks. The caller counts."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        finish_round: Callable[[], None],
        topics_deleted: Callable[[str, int], bool],
        read_queues: Callable[[str], int],
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics_deleted = topics_deleted
        self._read_queues = read_queues
        self.finish_round = finish_round
        """To be called by a service after its puts: dispatches, wakes held pulls, sends answers."""
        self.hooks: list[Hook] = []
        """In order: each may change topic, queue, properties and tags code of a draft, or refuse
        it.

        Called with the draft, its properties, the store timestamp that it will get, in ms, and
        whether it was accepted before.
        """
        self.closed = False

    def close(self) -> None:
        """Refuse all puts from now on, because the tables are saved for the last time.

        A message copied after that would be copied again by the next start.
        """
        self.closed = True

    def put(
        self, draft: MessageDraft, properties: dict[str, str], *, accepted: bool = False
    ) -> PutResult:
        """Store a message through the hooks. Raises: Refusal, by a hook; nothing is stored then."""
        if self.closed:
            return CLOSED
        now_ms = self._next_timestamp()
        draft.tags_code = tags_code(properties.get("TAGS"))
        for hook in self.hooks:
            hook(draft, properties, now_ms, accepted)
        draft.properties = encode(properties).encode()
        return self._store.put(draft, now_ms, accepted=accepted)

    def validate(self, draft: MessageDraft, properties: dict[str, str]) -> None:
        """Run the hooks over a copy of a message that is put later. Raises: Refusal, by a hook."""
        if self.hooks:
            draft, properties = copy(draft), dict(properties)
            for hook in self.hooks:
                hook(draft, properties, self._next_timestamp(), False)

    def put_as_is(self, draft: MessageDraft) -> PutResult:
        """Store a message whose topic and queue are final: no hook runs."""
        return CLOSED if self.closed else self._store.put(draft)

    def put_again(self, draft: MessageDraft) -> PutResult:
        """Store an accepted message once more, in its next queue."""
        if self.closed:
            return CLOSED
        draft.queue_id = self.queue_now(draft.topic, draft.queue_id)
        return self._store.put(draft, accepted=True)

    def put_copies(self, copies: Sequence[Copy]) -> Iterator[tuple[int, PutResult]]:
        """Store accepted messages once more, in order; those in a row for one queue at once. Hot.

        Each result comes with the number of the first copy that it is about. `count` of them are
        stored, and its status is about the next one: UNSTORABLE, then that one is passed over, or
        another one, which ends it. To be used up in one step of the loop.
        """
        at = 0
        for target, group in groupby(copies, _target):
            run = [(message, properties) for message, properties, _, _ in group]
            end = at + len(run)
            while at < end:
                if target is None:
                    result = NOWHERE
                elif self.closed:
                    result = CLOSED
                else:
                    queue_id = self.queue_now(*target)
                    result = self._store.writer.put_copies(target.topic, queue_id, run)
                yield at, result
                at += result.count
                if result.status in UNSTORABLE:
                    at += 1
                elif result.status is not PUT_OK:
                    return
                run = run[at - end :] if at < end else run

    def queue_now(self, topic: str, queue_id: int) -> int:
        """The queue for what waited for this one: nobody would read what the topic has no more."""
        queues = self._read_queues(topic)
        return queue_id % queues if 0 < queues <= queue_id else queue_id

    def is_deleted(self, topic: str, waiting: Record | StoredMessage) -> bool:
        """Whether the topic that a message waits for was deleted after the message was stored.

        To be asked before it is stored again: its queue would bring the topic back.
        """
        return self._topics_deleted(topic, waiting.physical_offset)

    def _next_timestamp(self) -> int:
        """The store timestamp of the next record: never before that of the last one."""
        return max(self._clock.now_ms(), self._store.commit_log.last_store_timestamp)

    def when_durable(self, reached: Callable[[PutOutcome], None]) -> None:
        """Call back when everything put so far is on disk, and in a group with all of its sync set:
        a client waits for that. Its sync begins with the next dispatch.
        """
        store = self._store
        wait = store.when_durable if store.waits_for_group else store.when_on_disk
        wait(store.commit_log.max_offset, reached)

    async def durable(self) -> None:
        """Wait until everything put so far is on disk; no client does. Raises: OSError when that
        failed.
        """
        done = trio.Event()
        kept = PutOutcome.DURABLE

        def reached(outcome: PutOutcome) -> None:
            nonlocal kept
            kept = outcome
            done.set()

        self._store.when_on_disk(self._store.commit_log.max_offset, reached, background=True)
        self._store.dispatch()
        await done.wait()
        if not kept:
            raise OSError("the log did not reach the disk in time")
