"""How long requests take: buckets, sums, and a limit on what any peer can make of them."""

from __future__ import annotations

import pytest

from aerobee.remoting.latency import (
    BOUNDS_MS,
    SERIES_MAX,
    SUCCESS_RESULT,
    UNKNOWN_MAX,
    Latencies,
    LatencyKey,
)

NOW = 1_000.0
SEND = LatencyKey(310, 0, False, SUCCESS_RESULT)


def counts(latencies: Latencies, kind: LatencyKey = SEND) -> dict[float, int]:
    """Upper bound in ms → requests, of the buckets that have some."""
    bounds = (*BOUNDS_MS, float("inf"))
    return {
        bound: count
        for bound, count in zip(bounds, latencies.kinds[kind].counts, strict=True)
        if count
    }


def test_requests_of_one_round_fall_into_the_buckets_of_their_age() -> None:
    latencies = Latencies()
    for age_ms in (0.5, 0.6, 2, 6.5, 50, 4_000):
        latencies.ended[SEND].append(NOW - age_ms / 1_000)
    latencies.sent(NOW)
    assert counts(latencies) == {1: 2, 3: 1, 7: 1, 100: 1, float("inf"): 1}
    assert latencies.kinds[SEND].total_s == pytest.approx(4.0596)


def test_requests_of_one_age_are_counted_together() -> None:
    latencies = Latencies()
    latencies.ended[SEND] += [NOW - 0.002] * 32
    latencies.sent(NOW)
    latencies.ended[SEND] += [NOW + 1 - 0.002] * 8
    latencies.sent(NOW + 1)
    assert counts(latencies) == {3: 40}
    assert latencies.kinds[SEND].total_s == pytest.approx(0.08)


def test_kinds_are_counted_by_themselves_up_to_a_limit() -> None:
    latencies = Latencies()
    for code in range(SERIES_MAX + 5):
        latencies.ended[LatencyKey(SEND.request_code, code, False, SUCCESS_RESULT)].append(NOW)
    latencies.sent(NOW)
    assert len(latencies.kinds) == SERIES_MAX
    assert sum(latencies.overflow.counts) == 5
    latencies.ended[LatencyKey(SEND.request_code, 7, False, SUCCESS_RESULT)].append(NOW)
    latencies.sent(NOW)
    assert sum(latencies.kinds[LatencyKey(SEND.request_code, 7, False, SUCCESS_RESULT)].counts) == 2


def test_codes_that_nobody_knows_leave_room_for_the_others() -> None:
    latencies = Latencies()
    for code in range(800_000, 800_000 + SERIES_MAX):
        latencies.ended[LatencyKey(code, 3, False, SUCCESS_RESULT)].append(NOW)
    latencies.ended[SEND].append(NOW)
    latencies.sent(NOW)
    assert len(latencies.kinds) == UNKNOWN_MAX + 1
    assert sum(latencies.kinds[SEND].counts) == 1


def test_who_waits_for_the_next_flush_is_called_once() -> None:
    latencies, called = Latencies(), list[float]()
    latencies.ended[SEND].append(NOW)
    latencies.when_sent.append(called.append)
    latencies.sent(NOW)
    latencies.sent(NOW + 1)
    assert called == [NOW]
