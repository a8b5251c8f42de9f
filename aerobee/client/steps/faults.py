"""Brokers that were slow or failed recently, whose queues are chosen last. Pure.

Source: client §5.2 (MQFaultStrategy, LatencyFaultToleranceImpl of 5.1.4 and later).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Clock

AWAY_S = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
"""The duration of a send, and for how long its broker is unavailable then."""
FAILED_AS_S = 10.0
"""The duration that a failed send counts with."""


@dataclass(slots=True)
class Faults:
    """The latency or failure of the last send to each broker. Times in seconds."""

    clock: Clock
    _away_until: dict[str, float] = field(default_factory=dict)
    _unreachable: set[str] = field(default_factory=set)
    """Brokers that refused the last send."""

    def succeeded(self, broker: str, took_s: float) -> None:
        """Note a successful send; a slow one makes the broker unavailable for a while."""
        self._unreachable.discard(broker)
        self._note(broker, took_s)

    def failed(self, broker: str, *, refused: bool) -> None:
        """Note a failed send: refused by the broker, or lost in the network."""
        if refused:
            self._unreachable.add(broker)
        else:
            self._unreachable.discard(broker)
        self._note(broker, FAILED_AS_S)

    def _note(self, broker: str, took_s: float) -> None:
        away_s = next((away for least, away in AWAY_S if took_s >= least), 0.0)
        self._away_until[broker] = self.clock.monotonic() + away_s

    def available(self, broker: str) -> bool:
        """Whether the broker was neither slow nor failed recently."""
        return self._away_until.get(broker, 0.0) <= self.clock.monotonic()

    def reachable(self, broker: str) -> bool:
        """Whether the broker did not refuse the last send."""
        return broker not in self._unreachable


def next_step(
    queues: Sequence[MessageQueue], counter: int, last: str | None, faults: Faults | None
) -> int:
    """How far behind `counter` the queue lies that is next: never of broker `last`, if others are.

    With `faults`, a queue of a broker that is available comes first, then of one that is reachable.
    """
    wanted: list[Callable[[str], bool]] = [lambda name: name != last]
    if faults is not None:
        wanted = [
            lambda name: name != last and faults.available(name),
            lambda name: name != last and faults.reachable(name),
            *wanted,
        ]
    for fits in wanted:
        for step in range(1, len(queues) + 1):
            if fits(queues[(counter + step) % len(queues)].broker_name):
                return step
    return 1
