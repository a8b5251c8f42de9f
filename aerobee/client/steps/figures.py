"""Statistics of a consumer for each topic: counters, and rates of the last minute and hour.

Rates are computed from a sample that is a minute old. Source: client §9.7 (ConsumerStatsManager).
"""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, dataclass, field

from aerobee.remoting.wire.bodies.queue import ConsumeStatus

SAMPLE_S = 10.0
MINUTE_S = 60.0
SAMPLES_MAX = 360
"""The samples of an hour, or a few less if some are late."""


@dataclass(slots=True)
class Counts:
    """The counters of one topic since the consumer began. Times in seconds."""

    pulls: int = 0
    pull_s: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_s: float = 0.0
    handled: int = 0
    failed: int = 0

    def less(self, before: Counts) -> Counts:
        """The differences from earlier counters."""
        mine, theirs = astuple(self), astuple(before)
        return Counts(*(now - then for now, then in zip(mine, theirs, strict=True)))


@dataclass(slots=True)
class Figures:
    """The statistics of all topics of a consumer that began at `began`, in monotonic seconds."""

    began: float
    topics: dict[str, Counts] = field(default_factory=dict)
    _samples: deque[tuple[float, dict[str, Counts]]] = field(
        default_factory=lambda: deque(maxlen=SAMPLES_MAX)
    )

    def of(self, topic: str) -> Counts:
        """The counters of a topic."""
        return self.topics.setdefault(topic, Counts())

    def sample(self, now: float) -> None:
        """Take a sample, unless the last one is recent."""
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_S:
            zero = Counts()
            growth = {topic: counts.less(zero) for topic, counts in self.topics.items()}
            self._samples.append((now, growth))

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """The rates of a topic in the last minute, and its failures of the last hour."""
        at, then = self.began, Counts()
        for at_sample, counts in self._samples:
            if now - at_sample >= MINUTE_S:
                at, then = at_sample, counts.get(topic, then)
        minute = self.of(topic).less(then)
        first = self._samples[0][1].get(topic, Counts()) if self._hour_is_full() else Counts()
        seconds = max(now - at, 1.0)
        return ConsumeStatus(
            pull_rt=1000 * minute.pull_s / max(minute.pulls, 1),
            pull_tps=minute.pulled / seconds,
            consume_rt=1000 * minute.call_s / max(minute.calls, 1),
            consume_ok_tps=minute.handled / seconds,
            consume_failed_tps=minute.failed / seconds,
            consume_failed_msgs=self.of(topic).failed - first.failed,
        )

    def _hour_is_full(self) -> bool:
        return len(self._samples) == SAMPLES_MAX
