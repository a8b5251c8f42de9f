"""What a handler says of its messages, and what its mistakes cost: a delivery, never a message."""

from math import inf, nan
from typing import Any
from unittest.mock import MagicMock

import pytest

from aerobee import BatchFailed, ReceivedMessage, Reject, RetryLater
from aerobee.client.handling import verdict_of_error, verdict_of_result
from aerobee.errors import ConfigurationError
from tests.aerobee.client.steps.test_held_queue import message

BATCH: list[ReceivedMessage] = [message(offset) for offset in range(3)]


def test_of_a_batch_the_named_places_failed() -> None:
    verdict = verdict_of_error(BatchFailed([2, 0, 2], level=4), 3)
    assert (verdict.failed(BATCH), verdict.level) == ([BATCH[0], BATCH[2]], 4)
    assert verdict_of_error(BatchFailed([]), 3).failed(BATCH) == []
    assert verdict_of_error(Reject(), 3).given_up


@pytest.mark.parametrize("wrong", [[-1], [3], [0, 3]])
def test_a_place_outside_of_the_batch_makes_all_of_it_fail(
    wrong: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    verdict = verdict_of_error(BatchFailed(wrong, level=4), 3)
    assert (verdict.failed(BATCH), verdict.level) == (BATCH, 4)
    assert f"BatchFailed names [{wrong[-1]}] of a batch of 3" in caplog.text


def test_a_mock_may_stand_for_a_handler() -> None:
    """It has every method, `__anext__` too, and nobody has to await what it returns."""
    assert verdict_of_result(MagicMock()(BATCH)) is None


@pytest.mark.parametrize("wrong", [["0"], [0.0], [BATCH[0]], [None]])
def test_a_place_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(TypeError):
        BatchFailed(wrong)


@pytest.mark.parametrize("suspend", [-1, inf, nan, "1"])
def test_a_pause_is_a_number_of_seconds(suspend: Any) -> None:
    with pytest.raises((ConfigurationError, TypeError)):
        RetryLater(suspend=suspend)
    assert RetryLater(suspend=0.5).suspend == 0.5


@pytest.mark.parametrize("level", [-1, 19, 1.5, "1"])
def test_a_level_is_one_that_brokers_may_have(level: Any) -> None:
    with pytest.raises((ConfigurationError, TypeError)):
        RetryLater(level)
    assert RetryLater(18).level == 18
