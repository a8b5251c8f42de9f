"""The judge of hand-overs must see each crime: a checker that finds nothing proves nothing."""

from dataclasses import replace

from tests.kit.books import Delayed, is_torn, wrong_deliveries
from tests.kit.raw_client import RawRecord

DUE_MS = 5_000
SENT = {f"u{number}": Delayed(f"u{number}", b"u%d|later" % number, DUE_MS) for number in range(2)}
OURS, JAVA = [(0, False)], [(0, True)]


def came(uid: str, at_ms: int = DUE_MS) -> RawRecord:
    return RawRecord("delayed", 0, 0, at_ms, at_ms, f"{uid}|later".encode(), "")


def crimes(
    *records: RawRecord,
    kills_ms: tuple[int, ...] = (),
    turns_ms: list[tuple[int, bool]] = OURS,
) -> list[str]:
    wrong = wrong_deliveries(SENT, records, kills_ms, turns_ms)
    return [line.partition(":")[0] for line in wrong]


def test_what_came_once_and_in_time_is_right() -> None:
    assert crimes() == crimes(came("u0"), came("u1", DUE_MS + 1)) == []


def test_what_was_never_sent_is_foreign_and_other_bytes_are_altered() -> None:
    assert crimes(came("u9")) == ["foreign"]
    assert crimes(replace(came("u0"), body=b"u0|sooner")) == ["altered"]


def test_only_java_may_come_too_early() -> None:
    early = came("u0", DUE_MS - 1)
    assert crimes(early) == ["early"]
    assert crimes(early, turns_ms=JAVA) == []
    assert crimes(early, turns_ms=[(0, True), (DUE_MS - 1, False)]) == ["early"]


def test_a_copy_needs_a_kill_between_it_and_the_one_before() -> None:
    copies = [came("u0", DUE_MS + late_ms) for late_ms in (0, 10, 20)]
    assert crimes(*copies) == ["doubled", "doubled"]
    assert crimes(*copies, kills_ms=(DUE_MS - 1, DUE_MS + 21)) == ["doubled", "doubled"]
    assert crimes(*copies, kills_ms=(DUE_MS + 5,)) == ["doubled"]
    assert crimes(*copies, kills_ms=(DUE_MS + 5, DUE_MS + 15)) == []


def test_only_a_killed_java_broker_may_leave_the_end_of_a_record_out() -> None:
    torn = replace(came("u0", 10), properties="KEYS\x01u0\x02TA\0\0\0")
    assert is_torn(torn, [11], [(0, True), (12, False)])
    assert not is_torn(replace(torn, properties=""), [11], [(0, True), (12, False)])
    assert not is_torn(torn, [11], [(0, False), (12, True)])
    assert not is_torn(torn, [9, 13], [(0, True), (12, False)])
    assert not is_torn(torn, [], [(0, True)])
