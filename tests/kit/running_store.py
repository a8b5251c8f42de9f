"""A store with its services, in a nursery, on small files; checked when the test ends."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.store.message_store import MessageStore
from aerobee.store.queues import dispatch
from aerobee.store.results import PutOutcome, PutStatus
from tests.kit.store_checker import check_closed, check_running
from tests.kit.store_model import small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.format.record import MessageDraft
    from aerobee.store.results import PutResult


STEP_S = dispatch.STEP_S
WHOLE_S = 600.0


@contextmanager
def whole_steps() -> Iterator[None]:
    """A step of dispatch ends when there is nothing left, however slow the machine is."""
    dispatch.STEP_S = WHOLE_S
    try:
        yield
    finally:
        dispatch.STEP_S = STEP_S


class TrioClock:
    """The clock of the loop: virtual where the test's clock is. Threads may ask it."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self.start_ms = start_ms
        self.clock = trio.lowlevel.current_clock()
        self.began = self.monotonic()

    def now_ms(self) -> int:
        return self.start_ms + int((self.monotonic() - self.began) * 1_000)

    def monotonic(self) -> float:
        return self.clock.current_time()


def roll_at_once(store: MessageStore) -> None:
    """Make each segment in the roll that needs it, and none ahead.

    Puts without an await between them are stored then, however many segments they take.
    """
    store.space.allocator.run = trio.sleep_forever  # type: ignore[method-assign]  # see above


@asynccontextmanager
async def running_store(
    root: Path,
    disk: Disk,
    *,
    clean: bool = True,
    clock: Clock | None = None,
    prepares: bool = False,
    in_group: bool = False,
    **changes: object,
) -> AsyncIterator[MessageStore]:
    """Loaded and running; at the end closed, and its files checked.

    Unless it `prepares` segments ahead, as a broker does, it rolls at once.
    """
    store = MessageStore(
        small_config(root, **changes),
        disk=disk,
        clock=clock or TrioClock(),
        in_group=in_group,
    )
    if not prepares:
        roll_at_once(store)
    store.load()
    with whole_steps():
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            if prepares:
                await wait_all_tasks_blocked()
            yield store
            check_running(store)
            nursery.cancel_scope.cancel()
    assert await store.close() is clean
    check_closed(root, clean=clean)


async def put_in_time(store: MessageStore, draft: MessageDraft) -> PutResult:
    """Put, and put again when the segment is there that was late."""
    while (result := store.put(draft)).status is PutStatus.SEGMENT_LATE:
        told = trio.Event()
        store.after_wait.add(told.set)
        await told.wait()
        store.after_wait.remove(told.set)
    return result


async def durable(store: MessageStore, end_offset: int) -> bool:
    """Wait for the answer that a producer would wait for."""
    answer: list[PutOutcome] = []
    told = trio.Event()

    def answered(outcome: PutOutcome) -> None:
        answer.append(outcome)
        told.set()

    store.when_durable(end_offset, answered)
    store.dispatch()
    await told.wait()
    return bool(answer[0])
