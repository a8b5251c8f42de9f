from aerobee.remoting.rate_limit import BUCKETS_MAX, ClientRates, RateLimit, RateLimits


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


def test_a_limit_that_changes_gives_nothing_back_that_was_taken() -> None:
    limit = RateLimit(10, 0)
    assert taken(limit, 0, 4) == 4
    limit.allow(8, 0)
    assert limit.taken(0) == 4
    assert taken(limit, 0) == 4


def test_each_name_has_its_own_bucket() -> None:
    limits = RateLimits(2)
    assert [limits.take("a", 0) for _ in range(3)] == [True, True, False]
    assert limits.take("b", 0)
    assert limits.busiest(0) == 2
    assert limits.take("a", 500)
    limits.allow(0)
    assert limits.busiest(500) == 0


def test_there_are_so_many_buckets_and_the_oldest_goes() -> None:
    limits = RateLimits(1)
    for name in range(BUCKETS_MAX):
        assert limits.take(name, 0)
    assert not limits.take(0, 0), "asked again: now 1 is the oldest"
    assert limits.take("new", 0)
    assert not limits.take(0, 0)
    assert limits.take(1, 0), "forgotten, and begins anew"


def test_what_has_happened_is_paid_for_even_if_it_is_more_than_there_is() -> None:
    limit = RateLimit(10, 2)
    limit.spend(14, 0)
    assert not limit.allows(1, 2_000)
    assert limit.allows(1, 2_500)


def test_a_client_has_requests_and_bytes_of_messages() -> None:
    rates = ClientRates("requests", "bytes")
    assert not rates.limited
    rates.allow(3, 100)
    assert rates.limited
    assert rates.take("a", 250, 0) is None, "one long message passes"
    assert rates.take("a", 1, 1_000) == ("bytes", 100)
    assert rates.take("a", 0, 1_000) is None, "what sends nothing goes on"
    assert rates.take("b", 1, 1_000) is None
    assert rates.take("a", 1, 2_600) is None, "it is paid for"
    assert [rates.take("b", 0, 1_000) for _ in range(3)] == [None, None, ("requests", 3)]
    rates.allow(0, 0)
    assert not rates.limited
