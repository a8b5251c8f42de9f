"""The one background thread: many jobs, answers in any order, deadlines, and a bug."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import pytest

from aerobee.client.blocking.background import Background, WakeUp, WhenAnswered
from aerobee.client.steps.effects import Ask, Signal, Steps, Wait
from aerobee.errors import ConnectError, RequestTimeoutError
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import Heartbeat

WITHIN_S = 60


class Peer:
    """Collects requests; the test answers them when it likes."""

    def __init__(self) -> None:
        self.asked: list[tuple[Ask, WhenAnswered]] = []
        self.forgotten: list[str] = []
        self.came = threading.Semaphore(0)
        self.failed = False

    def begin(self, ask: Ask, done: WhenAnswered) -> object:
        self.asked.append((ask, done))
        self.came.release()
        return lambda: self.forgotten.append(ask.address)

    def fail(self) -> None:
        self.failed = True

    def next(self) -> None:
        assert self.came.acquire(timeout=WITHIN_S)


@contextmanager
def background(peer: Peer) -> Iterator[Background]:
    made = Background("test", threading.RLock(), peer.begin, peer.fail)  # type: ignore[arg-type]  # a fake
    made.start()
    try:
        yield made
    finally:
        made.stop()
        made.join()


def ask(address: str, timeout_s: float = WITHIN_S, until: Signal | None = None) -> Ask:
    return Ask(address=address, header=Heartbeat(), timeout_s=timeout_s, until=until)


class Outcome:
    """What a job ended with."""

    def __init__(self) -> None:
        self.value: object = None
        self._ended = threading.Event()

    def end(self, value: object) -> None:
        self.value = value
        self._ended.set()

    def get(self) -> object:
        assert self._ended.wait(WITHIN_S)
        return self.value


def asking(outcome: Outcome, wanted: Ask) -> Steps[None]:
    try:
        outcome.end((yield wanted))
    except (ConnectError, RequestTimeoutError) as error:
        outcome.end(error)


def test_jobs_go_on_in_the_order_of_their_answers() -> None:
    peer, one, two = Peer(), Outcome(), Outcome()
    with background(peer) as thread:
        thread.spawn(asking(one, ask("one")))
        thread.spawn(asking(two, ask("two")))
        peer.next()
        peer.next()
        peer.asked[1][1](Command(2), None)
        assert two.get() == Command(2)
        peer.asked[0][1](Command(1), None)
        assert one.get() == Command(1)


def test_a_failure_is_thrown_into_the_job() -> None:
    peer, outcome, error = Peer(), Outcome(), ConnectError("refused")
    with background(peer) as thread:
        thread.spawn(asking(outcome, ask("one")))
        peer.next()
        peer.asked[0][1](None, error)
        assert outcome.get() is error


def test_an_answer_that_does_not_come_is_given_up_and_forgotten() -> None:
    peer, outcome = Peer(), Outcome()
    with background(peer) as thread:
        thread.spawn(asking(outcome, ask("one", timeout_s=0.01)))
        assert isinstance(outcome.get(), RequestTimeoutError)
    assert peer.forgotten == ["one"]


def test_a_signal_ends_the_wait_for_an_answer_and_a_late_answer_means_nothing() -> None:
    peer, first, second, until = Peer(), Outcome(), Outcome(), Signal()

    def twice() -> Steps[None]:
        first.end((yield ask("one", until=until)))
        second.end((yield ask("two")))

    with background(peer) as thread:
        thread.spawn(twice())
        peer.next()
        until.set()
        assert first.get() is None
        peer.next()
        peer.asked[0][1](Command(1), None)
        peer.asked[1][1](Command(2), None)
        assert second.get() == Command(2)


def test_waits_end_by_their_signal_or_their_time() -> None:
    outcome, signal = Outcome(), Signal()

    def waiting() -> Steps[None]:
        yield Wait(Signal(), 0.01)
        yield Wait(signal, inf)
        outcome.end("both")

    with background(Peer()) as thread:
        thread.spawn(waiting())
        signal.set()
        assert outcome.get() == "both"


def test_deadlines_that_are_overtaken_do_not_pile_up() -> None:
    outcome, signal = Outcome(), Signal()
    signal.set()

    def waiting() -> Steps[None]:
        for _ in range(10_000):
            yield Wait(signal, 1000)
        outcome.end(None)

    with background(Peer()) as thread:
        thread.spawn(waiting())
        outcome.get()
        gc.collect()  # those of other tests
        assert sum(isinstance(one, WakeUp) for one in gc.get_objects()) <= 1000


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_ends_the_thread_and_can_be_seen() -> None:
    def buggy() -> Steps[None]:
        yield Wait(Signal(), 0)
        raise ZeroDivisionError

    peer = Peer()
    with background(peer) as thread:
        assert not peer.failed
        thread.spawn(buggy())
        thread.join()
        assert peer.failed


def test_stopping_is_no_failure() -> None:
    peer = Peer()
    with background(peer) as thread:
        thread.stop()
        thread.join()
        assert not peer.failed
