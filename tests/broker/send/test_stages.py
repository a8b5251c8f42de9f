"""Where the time of a send goes: one of each round is followed, from its arrival to its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.send.stages import STAGES, SendStages
from aerobee.remoting.latency import SUCCESS_RESULT, Latencies
from aerobee.store.results import PutOutcome
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from aerobee.store.stats import Durations

ARRIVED, TURN = 999.990, 999.997


class Scene:
    """A clock at 1,000 s, and the stages of sends by it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.durations: dict[str, Durations] = {}
        self.latencies = Latencies()
        self.stages = SendStages(self.durations, self.latencies, self.clock.monotonic)

    def sent(self) -> None:
        """The end of a round."""
        self.latencies.ended[310, 0, False, SUCCESS_RESULT].append(ARRIVED)
        self.latencies.sent(self.clock.monotonic())

    def seconds(self) -> dict[str, float]:
        return {stage: self.durations[stage].total_s for stage in STAGES}


def test_a_send_is_queued_appended_and_answered_with_its_round() -> None:
    scene = Scene()
    scene.stages.appended(ARRIVED, TURN)
    assert not scene.stages.idle
    scene.clock.pass_ms(2)
    scene.sent()
    assert scene.stages.idle
    expected = {"queued": 0.007, "appended": 0.003, "flushed": 0, "answered": 0.002}
    assert scene.seconds() == pytest.approx(expected)
    assert scene.durations["flushed"].count == 0


def test_a_send_that_waits_for_the_disk_is_followed_until_its_answer() -> None:
    scene, answered = Scene(), list[PutOutcome]()
    durable = scene.stages.until_durable(ARRIVED, TURN, answered.append)
    scene.sent()
    assert not scene.stages.idle, "its own round ended without its answer"
    scene.clock.pass_ms(5)
    durable(PutOutcome.DURABLE)
    scene.clock.pass_ms(1)
    scene.sent()
    assert scene.stages.idle
    assert answered == [PutOutcome.DURABLE]
    expected = {"queued": 0.007, "appended": 0.003, "flushed": 0.005, "answered": 0.001}
    assert scene.seconds() == pytest.approx(expected)
