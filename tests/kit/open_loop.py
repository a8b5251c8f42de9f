"""Sends that leave by the clock, whatever has been answered: what a closed loop never shows.

Each connection has a thread that sends and one that listens. A send whose socket takes nothing is
late, and so are those behind it: that is part of what is measured.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kit.raw_client import Closed, RawAnswer, RawConnection, properties_text, send_fields

SEND_MESSAGE_V2, SUCCESS, SYSTEM_BUSY = 310, 0, 2
TICK_S = 0.005
QUEUES = 4


@dataclass(slots=True)
class Outcome:
    """What came of the sends, answered within the measured time; seconds."""

    elapsed_s: float = 0.0
    offered: int = 0
    good_s: list[float] = field(default_factory=list)
    """How long each success took from the time at which it was to be sent."""
    busy_s: list[float] = field(default_factory=list)
    busy_remarks: set[str] = field(default_factory=set)
    others: list[RawAnswer] = field(default_factory=list)

    @property
    def good_per_s(self) -> float:
        """Messages stored and told in a second."""
        return len(self.good_s) / self.elapsed_s

    def heard(self, answer: RawAnswer, after_s: float) -> None:
        """Count one answer."""
        if answer.code == SUCCESS:
            self.good_s.append(after_s)
        elif answer.code == SYSTEM_BUSY:
            self.busy_s.append(after_s)
            self.busy_remarks.add(answer.remark or "")
        else:
            self.others.append(answer)


def ask(connection: RawConnection, topic: str) -> int:
    """One small send."""
    number = connection.opaque
    fields = send_fields(topic, number % QUEUES, i=properties_text(UNIQ_KEY=f"{number:032X}"))
    return connection.ask(SEND_MESSAGE_V2, fields, b"x" * 100)


def closed_loop(address: str, topic: str, *, window: int, seconds: float) -> float:
    """Messages per second when one connection always has `window` sends in flight."""
    with RawConnection(address) as connection:
        for _ in range(window):
            ask(connection, topic)
        stored, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            stored += connection.hear().code == SUCCESS
            ask(connection, topic)
    return stored / seconds


def open_loop(
    address: str, topic: str, *, per_s: float, seconds: float, connections: int = 8
) -> Outcome:
    """Offer `per_s` sends per second over all connections together."""
    outcomes = [Outcome() for _ in range(connections)]
    threads = [
        threading.Thread(target=offer, args=(address, topic, per_s / connections, seconds, outcome))
        for outcome in outcomes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return together(outcomes, seconds)


def together(outcomes: list[Outcome], seconds: float) -> Outcome:
    """One outcome of many."""
    every = Outcome(elapsed_s=seconds)
    for outcome in outcomes:
        every.offered += outcome.offered
        every.good_s += outcome.good_s
        every.busy_s += outcome.busy_s
        every.busy_remarks |= outcome.busy_remarks
        every.others += outcome.others
    return every


def offer(address: str, topic: str, per_s: float, seconds: float, outcome: Outcome) -> None:
    """What one connection does."""
    with RawConnection(address) as connection:
        due: dict[int, float] = {}
        end = time.monotonic() + seconds
        listener = threading.Thread(target=listen, args=(connection, due, end, outcome))
        listener.start()
        for when in by_the_clock(per_s, seconds):
            # A sender that is late ends with its listener: no one would read the answers.
            if time.monotonic() >= end:
                break
            due[connection.opaque + 1] = when
            outcome.offered += 1
            ask(connection, topic)
        listener.join()


def by_the_clock(per_s: float, seconds: float) -> Iterator[float]:
    """The time of each send, when it has come."""
    began, pause = time.monotonic(), threading.Event()
    for number in range(int(per_s * seconds)):
        when = began + number / per_s
        while (wait_s := when - time.monotonic()) > 0:
            pause.wait(max(wait_s, TICK_S))
        yield when


def listen(connection: RawConnection, due: dict[int, float], end: float, outcome: Outcome) -> None:
    """Take answers until the measured time is over."""
    try:
        while time.monotonic() < end:
            answer = connection.hear()
            outcome.heard(answer, time.monotonic() - due.pop(answer.opaque))
    except (Closed, TimeoutError):
        return
