"""The laws of what comes later: each of them is broken once."""

from tests.kit.promises import Commits, Pops, Waits, uid_of
from tests.kit.raw_client import RawRecord

DUE_MS = 1_000


def record(
    uid: str = "a", *, queue_offset: int = 0, stored_ms: int = DUE_MS, body: bytes = b""
) -> RawRecord:
    return RawRecord("t", 0, queue_offset, 0, stored_ms, body or body_of(uid), "")


def body_of(uid: str) -> bytes:
    return uid.encode() + b"|filling"


def waits(*, kills: int = 0) -> Waits:
    """One message was sent to be parked, and then so many kills."""
    one = Waits()
    one.tried("t", "a", body_of("a"), DUE_MS).granted += 1
    one.life = kills
    return one


def kinds(lines: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in lines]


def test_what_comes_once_and_in_time_is_fine() -> None:
    assert uid_of(record("a")) == "a"
    assert waits().verdict([record()]) == []


def test_what_never_comes_is_lost_unless_it_was_not_granted() -> None:
    assert kinds(waits().verdict([])) == ["lost"]
    unknown = waits()
    unknown.asked["t", "a"].granted = 0
    assert unknown.verdict([]) == unknown.verdict([record()]) == []


def test_what_comes_before_its_time_is_early() -> None:
    assert kinds(waits().verdict([record(stored_ms=DUE_MS - 1)])) == ["early"]


def test_what_comes_twice_is_doubled_unless_a_kill_was_between() -> None:
    twice = [record(), record(queue_offset=1)]
    assert kinds(waits().verdict(twice)) == ["doubled"]
    assert waits(kills=1).verdict(twice) == []


def test_what_nobody_sent_is_foreign_and_another_body_is_altered() -> None:
    found = [record(), record("b", queue_offset=1)]
    assert kinds(waits().verdict(found)) == ["foreign"]
    assert kinds(waits().verdict([record(body=b"a|falling")])) == ["altered"]


def pops(*, orderly: bool = False) -> Pops:
    """One message was sent."""
    one = Pops(orderly)
    one.tried("a", body_of("a")).granted = True
    return one


def test_a_popped_message_comes_until_it_is_acknowledged() -> None:
    one = pops()
    assert kinds([*one.missing()]) == ["lost"]
    one.came(record(), DUE_MS)
    assert kinds([*one.missing()]) == ["lost"]
    one.came(record(), DUE_MS).tried = True
    assert [*one.missing()] == one.wrong == []


def test_after_an_acknowledgement_in_time_only_a_kill_brings_it_again() -> None:
    one = pops()
    one.came(record(), DUE_MS).acked_ms = DUE_MS
    one.came(record(), DUE_MS).acked_ms = DUE_MS - 1
    assert one.wrong == []
    one.came(record(), DUE_MS)
    assert kinds(one.wrong) == ["repeated"]
    one.life += 1
    one.came(record(), DUE_MS)
    assert len(one.wrong) == 1


def test_an_orderly_pop_goes_back_but_skips_nothing() -> None:
    one = pops(orderly=True)
    one.tried("b", body_of("b"))
    one.came(record(), DUE_MS)
    one.came(record(), DUE_MS)
    assert one.wrong == []
    one.came(record("b", queue_offset=2), DUE_MS)
    assert kinds(one.wrong) == ["skipped"]


def test_a_popped_message_is_what_was_sent() -> None:
    one = pops()
    one.came(record(body=b"a|falling"), DUE_MS)
    one.came(record("b"), DUE_MS)
    assert kinds(one.wrong) == ["altered", "foreign"]


def test_an_offset_was_committed_and_is_not_too_old() -> None:
    for found, wrong in ((4, 1), (5, 0), (7, 0), (8, 1)):
        one = Commits(highest=7, granted=[(0.0, 2), (1.0, 5), (2.0, 7)])
        assert len(one.begin(9.0, found, saved_by=1.5)) == wrong
        assert one.granted == [(0.0, found), (9.0, found)]
