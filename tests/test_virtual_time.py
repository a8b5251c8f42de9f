"""Virtual time waits for threads, and passes while a test holds one."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.store.files.sync_thread import SyncThread
from tests.kit.virtual_time import Opening

WORK_S = 0.05
ENDS = 20
"""Which of two tasks of trio is first is by chance."""


@pytest.mark.trio
async def test_virtual_time_stands_while_a_thread_works(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await trio.to_thread.run_sync(threading.Event().wait, WORK_S)
        assert trio.current_time() == 0
        await trio.sleep(2)
    assert scope.cancelled_caught
    assert trio.current_time() == 1


@pytest.mark.trio
async def test_everybody_waits_for_a_sync_in_a_thread(mock_clock: MockClock) -> None:
    thread = SyncThread()
    thread.start()
    ends: list[BaseException | None] = []
    thread.submit(lambda: thread.pause(WORK_S), ends.append)
    await wait_all_tasks_blocked()
    assert ends == [None]
    thread.stop()


@pytest.mark.trio
async def test_time_passes_while_a_test_holds_a_thread(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    opening = Opening()
    nursery.start_soon(trio.to_thread.run_sync, partial(opening.wait, 60))
    await trio.sleep(5)
    opening.set()
    began = trio.current_time()
    with trio.move_on_after(1):
        await trio.to_thread.run_sync(opening.wait)
        await trio.to_thread.run_sync(threading.Event().wait, WORK_S)
    assert trio.current_time() == began


def test_a_loop_ends_while_a_thread_works() -> None:
    """What has begun in a thread is not in the way of a loop that is over."""

    async def begin() -> None:
        thread = SyncThread()
        thread.start()
        thread.submit(lambda: thread.pause(0), lambda failure: None)

    for _ in range(ENDS):
        trio.run(begin, clock=MockClock())
