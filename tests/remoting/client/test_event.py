"""An event between threads, and within one thread that a signal handler interrupts."""

import sys
import threading
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from aerobee.remoting.client import event as module
from aerobee.remoting.client.event import Event

WITHIN_S = 30
HERE = str(Path(module.__file__))


def test_all_that_wait_are_woken_once_it_is_set() -> None:
    event = Event()
    woken: list[bool] = []
    waiting = [
        threading.Thread(target=lambda: woken.append(event.wait(WITHIN_S)), daemon=True)
        for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    event.set()
    for thread in waiting:
        thread.join(WITHIN_S)
    assert woken == [True] * 3
    assert event.wait(0)
    assert event.is_set()


def test_a_wait_ends_with_its_time_and_after_a_clear() -> None:
    event = Event()
    event.set()
    event.clear()
    began = monotonic()
    assert not event.wait(0.02)
    assert not event.wait(-1)
    assert monotonic() - began < WITHIN_S


def test_a_signal_handler_may_set_it_at_every_point_of_a_wait_and_of_a_set() -> None:
    """A `threading.Event` would be waited for by the handler that interrupts its own thread."""
    for call in (lambda event: event.wait(0.01), lambda event: event.set()):
        points = 0
        while passed(points + 1, call):
            points += 1
        assert points >= 3


def passed(point: int, call: Any) -> bool:
    """Whether the call has so many points; at the last of them a handler sets the event."""
    event, lines, ended = Event(), 0, False

    def trace(frame: FrameType, kind: str, argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != HERE:
            return None
        lines += 1
        if lines == point:
            sys.settrace(None)
            event.set()
        return trace

    def interrupted() -> None:
        nonlocal ended
        sys.settrace(trace)
        call(event)
        sys.settrace(None)
        ended = True

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    assert ended
    assert lines < point or event.is_set()
    return lines >= point
