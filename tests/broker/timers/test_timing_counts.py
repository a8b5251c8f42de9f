from __future__ import annotations

import pytest

from aerobee.broker.timers.timing_counts import TimingCounts


def test_only_topics_with_timers_are_in_the_document() -> None:
    counts = TimingCounts()
    counts.add("a", 2, 5)
    counts.add("b", 1, 6)
    counts.add("b", -1, 7)
    assert counts.document() == {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 5},
        "timingCount": {"a": {"count": 2, "timeStamp": 5}},
    }
    again = TimingCounts()
    again.load(counts.document())
    assert again.waiting == {"a": 2}
    again.nothing_waits()
    assert again.document()["timingCount"] == {}


def test_another_shape_changes_nothing() -> None:
    counts = TimingCounts()
    counts.add("a", 2, 5)
    with pytest.raises((ValueError, TypeError)):
        counts.load({"timingCount": {"a": 7}})
    assert counts.waiting == {"a": 2}
