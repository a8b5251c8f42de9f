"""Ids for messages: never one twice, whatever the calendar and the neighbours do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aerobee.broker.send.uniq_ids import UniqIds
from tests.broker.peers import HandClock

ADDRESS = bytes([10, 0, 0, 7])


def at(*when: int) -> HandClock:
    return HandClock(int(datetime(*when, tzinfo=UTC).timestamp() * 1000))  # type: ignore[misc,arg-type]  # a date


def parts(text: str) -> tuple[str, int, str, int, int]:
    """Address, process, salt, ms of the month, count."""
    return text[:8], int(text[8:12], 16), text[12:20], int(text[20:28], 16), int(text[28:], 16)


def test_an_id_says_address_process_salt_time_and_count() -> None:
    ids = UniqIds(ADDRESS, 0x1_2345, 0xABCD, at(2026, 3, 1, 0, 0, 1))
    assert parts(ids()) == ("0A000007", 0x2345, "0000ABCD", 1_000, 1)
    assert parts(ids())[-1] == 2


def test_an_ipv6_address_makes_it_longer() -> None:
    assert len(UniqIds(bytes(16), 1, 1, at(2026, 3, 1))()) == 56


@pytest.mark.parametrize(
    "when",
    [
        (2026, 1, 31, 23, 59, 59),
        (2026, 2, 28, 23, 59, 59),
        (2028, 2, 29, 23, 59, 59),
        (2026, 11, 30, 23, 59, 59),
        (2026, 12, 31, 23, 59, 59),
    ],
    ids=str,
)
def test_time_counts_from_the_start_of_each_month(when: tuple[int, ...]) -> None:
    clock = at(*when)
    ids = UniqIds(ADDRESS, 1, 1, clock)
    clock.pass_ms(999)
    last = parts(ids())[3]
    assert last == (when[2] * 86_400 * 1_000) - 1
    clock.pass_ms(1)
    assert parts(ids())[3] == 0
    clock.pass_ms(5)
    assert parts(ids())[3] == 5


def test_no_id_comes_twice_over_a_change_of_month_or_a_clock_that_goes_back() -> None:
    clock = at(2026, 12, 31, 23, 59, 59)
    ids = UniqIds(ADDRESS, 1, 1, clock)
    seen = []
    for elapsed_ms in (0, 0, 999, 1, 1, -5, 0, 3, 31 * 86_400_000, -62 * 86_400_000):
        clock.pass_ms(elapsed_ms)
        seen += [ids() for _ in range(20)]
    assert len(set(seen)) == len(seen)


def test_the_count_comes_round() -> None:
    ids = UniqIds(ADDRESS, 1, 1, at(2026, 3, 1))
    for _ in range(0xFFFE):
        ids()
    assert [parts(ids())[4] for _ in range(3)] == [0xFFFF, 0, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((ADDRESS, 1, 5), (ADDRESS, 1, 6)),
        ((ADDRESS, 1, 5), (ADDRESS, 2, 5)),
        ((ADDRESS, 1, 5), (bytes(4), 1, 5)),
    ],
    ids=["salt", "process", "address"],
)
def test_two_brokers_never_make_the_same(
    one: tuple[bytes, int, int], other: tuple[bytes, int, int]
) -> None:
    clock = at(2026, 3, 1)
    makers = UniqIds(*one, clock), UniqIds(*other, clock)
    seen = [maker() for _ in range(100) for maker in makers]
    assert len(set(seen)) == 200
