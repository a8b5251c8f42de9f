"""A system that gives no thread: what waits for one, and what says so."""

import threading

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from aerobee.threads import NONE_LEFT, REMEDY, in_thread, once_there_are_threads, start


def test_a_thread_that_is_not_given_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError(NONE_LEFT)

    with monkeypatch.context() as refusing:
        refusing.setattr(threading.Thread, "start", refused)
        with pytest.raises(OSError, match="TasksMax"):
            start(threading.Thread())
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    start(thread)
    thread.join()
    assert done.is_set()
    with pytest.raises(RuntimeError, match="only be started once"):
        start(thread)


def test_work_waits_until_there_is_a_thread_and_tells_it_once() -> None:
    calls: list[str] = []

    async def attempt() -> str:
        calls.append("call")
        if len(calls) < 4:
            raise RuntimeError(NONE_LEFT)
        return "done"

    with capture_logs() as lines:
        clock = MockClock(autojump_threshold=0)
        assert trio.run(once_there_are_threads, attempt, clock=clock) == "done"
    assert [line["remedy"] for line in lines] == [REMEDY]
    assert len(calls) == 4


def test_what_the_work_itself_could_not_start_is_not_tried_twice() -> None:
    calls: list[str] = []

    def work() -> None:
        calls.append("call")
        raise RuntimeError(NONE_LEFT)

    with pytest.raises(OSError, match="no thread can be started"):
        trio.run(in_thread, work)
    assert len(calls) == 1


def test_a_thread_has_the_name_of_its_work() -> None:
    def work() -> str:
        return threading.current_thread().name

    assert trio.run(in_thread, work).startswith("work from ")


def test_other_errors_pass() -> None:
    def work() -> None:
        raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        trio.run(in_thread, work)
