import threading

import pytest
import trio

from aerobee.store.files.sync_thread import MANY, SyncThread, side_by_side


@pytest.mark.trio
async def test_work_is_done_elsewhere_and_told_in_the_loop() -> None:
    thread = SyncThread()
    thread.start()
    told = trio.Event()
    seen: list[object] = []

    def work() -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    def done(failure: BaseException | None) -> None:
        seen.extend([threading.current_thread() is threading.main_thread(), failure])
        told.set()

    thread.submit(work, done)
    await told.wait()
    thread.stop()
    assert seen == [False, True, None]


@pytest.mark.trio
async def test_what_the_work_raised_is_told() -> None:
    thread = SyncThread()
    thread.start()
    thread.start()
    told = trio.Event()
    failures: list[BaseException | None] = []

    def work() -> None:
        raise OSError(5, "I/O error")

    def done(failure: BaseException | None) -> None:
        failures.append(failure)
        told.set()

    thread.submit(work, done)
    await told.wait()
    thread.stop()
    assert [type(failure) for failure in failures] == [OSError]


@pytest.mark.trio
async def test_a_stop_waits_for_the_work_there_is() -> None:
    thread = SyncThread()
    thread.start()
    finished: list[int] = []
    for number in range(3):
        thread.submit(lambda number=number: finished.append(number), lambda _: None)  # type: ignore[misc]  # a default binds the number
    thread.stop()
    thread.stop()
    assert finished == [0, 1, 2]
    assert not thread.running


def test_a_loop_that_is_gone_ends_the_thread() -> None:
    thread = SyncThread()
    held = threading.Event()

    def wait() -> None:
        assert held.wait(10)

    async def begin() -> None:
        thread.start()
        thread.submit(wait, lambda _: None)

    trio.run(begin)
    held.set()
    thread.stop()
    assert not thread.running


@pytest.mark.parametrize("count", [0, 1, MANY, 3 * MANY])
def test_all_is_done_once(count: int) -> None:
    done: list[int] = []
    side_by_side(done.append, range(count))
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize("count", [2, MANY])
def test_one_failure_of_many_is_told(count: int) -> None:
    def work(number: int) -> None:
        if number == 1:
            raise OSError(5, "I/O error")

    with pytest.raises(OSError, match="I/O"):
        side_by_side(work, range(count))


def test_many_wait_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=20)

    def work(number: int) -> None:
        if number < 2:
            together.wait()

    side_by_side(work, range(MANY))
