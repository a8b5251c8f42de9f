"""The background thread of a client, which runs heartbeats, rebalance and pulls.

Steps never block, they yield their effects; so one thread runs any number of them. It waits on its
inbox until a response, a signal or a deadline wakes one of the jobs.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from aerobee.client.steps.effects import Wait
from aerobee.client.transport import late

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.steps.effects import Ask, Effect, Steps
    from aerobee.errors import AerobeeError
    from aerobee.remoting.wire.command import Command

WhenAnswered: TypeAlias = "Callable[[Command | None, AerobeeError | None], None]"
"""A callback, called once with the response or the failure, from any thread."""
Begin: TypeAlias = "Callable[[Ask, WhenAnswered], Callable[[], None]]"
"""Sends a request without waiting; returns a function that forgets it."""
IDLE_S = 60.0
JOIN_S = 10.0
"""How long a close waits for the thread, which ends at once unless a signal handler closes the
client: the function that it interrupted may have what the thread needs.
"""
DEADLINES = 64


@dataclass(slots=True, eq=False)
class Job:
    """Running steps, and what they wait for."""

    steps: Steps[Any]
    then: Callable[[Any], object] | None = None
    """Called with the result, in the background thread, without the lock."""
    turn: int = 0
    """The number of advances: a wake-up made for an earlier turn is ignored."""
    forget: list[Callable[[], None]] = field(default_factory=list)
    """Functions that cancel what this turn waits for."""


@dataclass(frozen=True, slots=True)
class WakeUp:
    """The reason why a job continues."""

    job: Job
    turn: int
    answer: Command | None = None
    error: AerobeeError | None = None


def is_held_here(lock: threading.RLock) -> bool:
    """Whether this thread has the lock."""
    try:
        threading.Condition(lock).notify(0)  # refused without the lock
    except RuntimeError:
        return False
    return True


class Background:
    """The thread, its jobs and its deadlines. `lock` guards all state that steps change."""

    def __init__(
        self, name: str, lock: threading.RLock, begin: Begin, failed: Callable[[], object]
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._inbox: SimpleQueue[WakeUp | None] = SimpleQueue()
        self._deadlines: list[tuple[float, int, WakeUp]] = []
        self._order = count()
        self._many = DEADLINES
        self._failed = failed
        """Called by the thread when a bug ends it; `threading.excepthook` gets its traceback."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def spawn(self, steps: Steps[Any], then: Callable[[Any], object] | None = None) -> None:
        """Run these steps; from any thread. `then` is called with the result and must not wait."""
        self._inbox.put(WakeUp(Job(steps, then), 0))

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping = True
        self._inbox.put(None)

    def join(self) -> None:
        """Wait until the thread has ended, for some seconds at most.

        Does nothing in that thread, if it was not started, or where the caller has the lock: the
        thread ends once that is given back.
        """
        thread = self._thread
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(0 if is_held_here(self._lock) else JOIN_S)

    def _run(self) -> None:
        try:
            while (wake_up := self._next()) is not None:
                if wake_up.turn == wake_up.job.turn:
                    self._advance(wake_up)
        finally:
            if not self._stopping:
                self._failed()

    def _next(self) -> WakeUp | None:
        """The next wake-up, a deadline if one is due; None to stop."""
        while True:
            due_s = self._deadlines[0][0] - monotonic() if self._deadlines else IDLE_S
            try:
                return self._inbox.get(timeout=max(0.0, min(due_s, IDLE_S)))
            except Empty:
                if self._deadlines and self._deadlines[0][0] <= monotonic():
                    return heapq.heappop(self._deadlines)[2]

    def _advance(self, wake_up: WakeUp) -> None:
        """Run a job up to its next effect, and begin that; or to its end."""
        job = wake_up.job
        try:
            effect = self._next_effect(wake_up)
        except StopIteration as stop:
            if job.then is not None:
                job.then(stop.value)
            return
        if not isinstance(effect, Wait):
            self._ask(job, effect)

    def _next_effect(self, wake_up: WakeUp) -> Effect:
        """The next effect of a job. Raises: StopIteration, with the result, when it has ended."""
        job = wake_up.job
        with self._lock:
            job.turn += 1
            for forget in job.forget:
                forget()
            job.forget.clear()
            if wake_up.error is not None:
                effect = job.steps.throw(wake_up.error)
            else:
                effect = job.steps.send(wake_up.answer)
            if isinstance(effect, Wait):
                self._at(effect.seconds, WakeUp(job, job.turn))
                job.forget.append(effect.signal.listen(self._waker(job)))
            elif effect.until is not None:
                job.forget.append(effect.until.listen(self._waker(job)))
        return effect

    def _waker(self, job: Job) -> Callable[[], None]:
        wake_up = WakeUp(job, job.turn)
        return lambda: self._inbox.put(wake_up)

    def _at(self, seconds: float, wake_up: WakeUp) -> None:
        if len(self._deadlines) >= self._many:
            # Remove deadlines of earlier turns: most events arrive before their deadline.
            self._deadlines = [
                deadline for deadline in self._deadlines if deadline[2].turn == deadline[2].job.turn
            ]
            heapq.heapify(self._deadlines)
            self._many = 2 * len(self._deadlines) + DEADLINES
        heapq.heappush(self._deadlines, (monotonic() + seconds, next(self._order), wake_up))

    def _ask(self, job: Job, ask: Ask) -> None:
        turn = job.turn

        def done(answer: Command | None, error: AerobeeError | None) -> None:
            self._inbox.put(WakeUp(job, turn, answer, error))

        job.forget.append(self._begin(ask, done))
        self._at(ask.timeout_s, WakeUp(job, turn, error=late(ask)))
