from aerobee.broker.core.rate_limit import RateLimit


def taken(limit: RateLimit, now_ms: int, tries: int = 100) -> int:
    return sum(limit.take(now_ms) for _ in range(tries))


def test_a_burst_and_then_so_many_per_second() -> None:
    limit = RateLimit(10, 2)
    assert taken(limit, 1_000) == 10
    assert taken(limit, 1_400) == 0
    assert taken(limit, 1_500) == 1
    assert taken(limit, 4_500) == 6
    assert taken(limit, 1_000_000) == 10


def test_looking_takes_nothing() -> None:
    limit = RateLimit(10, 2)
    assert limit.allows(10, 0)
    assert not limit.allows(11, 0)
    assert taken(limit, 0) == 10


def test_a_clock_that_goes_back_neither_gives_nor_takes() -> None:
    limit = RateLimit(10, 2)
    assert taken(limit, 10_000, 5) == 5
    assert taken(limit, 1_000) == 5
    assert taken(limit, 2_000) == 2
