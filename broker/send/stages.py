"""Where the time of a send goes: one send of each round is followed through its stages.

    arrival → queued → its turn → appended → in the log → flushed → on disk → answered → sent

A round is one receive, one dispatch and one sync for all of its messages, so one of them says how
long it was; timing each of them would cost as much as counting it. Only a send whose answer waits
for the disk has the stage `flushed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.latency import Latencies
    from aerobee.store.results import PutOutcome

STAGES: Final = ("queued", "appended", "flushed", "answered")
BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class SendStages:
    """The durations of each stage, in seconds. `idle` while no send is followed."""

    __slots__ = ("_clock", "_latencies", "_since", "durations", "idle")

    def __init__(
        self, durations: dict[str, Durations], latencies: Latencies, clock: Callable[[], float]
    ) -> None:
        """`durations` gets an entry for each stage; `clock` is that of arrivals and turns."""
        self.durations = durations
        for stage in STAGES:
            durations[stage] = Durations(BOUNDS_S)
        self.idle = True
        self._latencies = latencies
        self._clock = clock
        self._since = 0.0

    def appended(self, arrived: float, turn: float) -> None:
        """The message of a send, which had its turn then, is in the log: follow its answer."""
        self.idle = False
        self._since = self._clock()
        self.durations["queued"].add(max(turn - arrived, 0.0))
        self.durations["appended"].add(self._since - turn)
        self._latencies.when_sent.append(self._sent)

    def until_durable(
        self, arrived: float, turn: float, durable: Callable[[PutOutcome], None]
    ) -> Callable[[PutOutcome], None]:
        """Follow an answer that waits for the disk; returns what is to be called, not `durable`."""
        self.idle = False
        self._since = appended = self._clock()
        self.durations["queued"].add(max(turn - arrived, 0.0))
        self.durations["appended"].add(appended - turn)

        def flushed(kept: PutOutcome) -> None:
            self._since = self._clock()
            self.durations["flushed"].add(self._since - appended)
            self._latencies.when_sent.append(self._sent)
            durable(kept)

        return flushed

    def _sent(self, now: float) -> None:
        self.durations["answered"].add(now - self._since)
        self.idle = True
