"""The load of a bench: the send times of its messages, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aerobee.cli.bench.histogram import Histogram

if TYPE_CHECKING:
    from aerobee.cli.bench.sequence import Checker


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The settings of a bench. `rate` in messages per second; None: as fast as answers arrive."""

    topic: str
    size: int = 128
    rate: float | None = None
    count: int | None = None
    duration_s: float = 10.0
    warmup_s: float = 0.0
    workers: int = 64
    consumers: int = 1
    drain_s: float = 10.0
    run: int = 0
    """A number that distinguishes the messages of this run from those of others."""


class Schedule:
    """The intended send times of the messages, one after the other.

    With a rate they are independent of the answers: a late message delays those behind it, and all
    of them count as late. Users see that delay; a closed loop hides it (coordinated omission).
    """

    def __init__(self, load: Load, started_s: float) -> None:
        self.load = load
        self.started_s = started_s
        self.given = 0
        self.unsent = 0
        """Messages that were so late that they are not sent any more."""

    def next(self, now_s: float) -> float | None:
        """The next time; None after the last, or `drain_s` after the duration has passed."""
        load = self.load
        at_s = now_s if load.rate is None else self.started_s + self.given / load.rate
        over = at_s - self.started_s >= load.duration_s
        if over if load.count is None else self.given >= load.count:
            return None
        late_s = now_s - self.started_s - load.duration_s
        if load.rate is not None and load.count is None and late_s >= load.drain_s:
            self.unsent = int(load.rate * load.duration_s) - self.given
            return None
        self.given += 1
        return at_s


@dataclass(slots=True)
class SendFailures:
    """Sends that failed alike: what the first error said, and how many there were."""

    text: str
    times: int = 0


@dataclass(slots=True)
class Outcome:
    """The results of a bench. Latencies are of messages whose send time is after the warm-up."""

    started_s: float = 0.0
    ended_s: float = 0.0
    sent: set[tuple[int, int]] = field(default_factory=set)
    """Sender and number of every message that the broker acknowledged."""
    failed: dict[str, SendFailures] = field(default_factory=dict)
    """Failed sends by the class of the error."""
    unsent: int = 0
    """Messages that a rate asked for and nobody came to send."""
    cpu_s: float = 0.0
    """CPU time of this process while it only waited."""
    received: int = 0
    received_bytes: int = 0
    send_latency: Histogram = field(default_factory=Histogram)
    receive_latency: Histogram = field(default_factory=Histogram)
    checkers: list[Checker] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The duration of the bench."""
        return max(self.ended_s - self.started_s, 1e-9)

    @property
    def lost(self) -> int:
        """Acknowledged messages that some consumer did not get."""
        return sum(checker.lost(self.sent) for checker in self.checkers)

    @property
    def failures(self) -> int:
        """Sends that were not acknowledged."""
        return sum(failure.times for failure in self.failed.values())

    def fail(self, error: Exception) -> None:
        """Count a send that was not acknowledged."""
        name = type(error).__name__
        self.failed.setdefault(name, SendFailures(f"{name}: {error}")).times += 1

    def sending(self, size: int) -> dict[str, Any]:
        """The figures of the sends."""
        count = len(self.sent)
        return {
            "sent": count,
            "failed": self.failures,
            "unsent": self.unsent,
            "seconds": self.seconds,
            "per_s": count / self.seconds,
            "mib_per_s": count * size / self.seconds / (1 << 20),
        }

    def receiving(self) -> dict[str, Any]:
        """The figures of the consumers."""
        return {
            "received": self.received,
            "received_per_s": self.received / self.seconds,
            "received_mib_per_s": self.received_bytes / self.seconds / (1 << 20),
        }

    def checked(self) -> dict[str, Any]:
        """Counts of lost, duplicate and reordered messages."""
        return {
            "lost": self.lost,
            "duplicates": sum(checker.duplicates for checker in self.checkers),
            "reordered": sum(checker.reordered for checker in self.checkers),
        }
