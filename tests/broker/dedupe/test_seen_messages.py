"""First messages: found within the window, forgotten behind it, never more than the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.config.settings.dedupe import DedupeRule
from aerobee.broker.dedupe.seen_messages import PLACE, SLICES, DedupeTable, FirstMessage

WINDOW_S = 60
WINDOW_MS = WINDOW_S * 1_000
SLICE_MS = WINDOW_MS // SLICES


def table(*topics: str, max_entries: int = 1_000) -> DedupeTable:
    return DedupeTable(
        [DedupeRule(topic, "KEYS", WINDOW_S) for topic in topics or ("t",)],
        max_entries=max_entries,
    )


def note(firsts: DedupeTable, topic: str, key: str, at: int, now_ms: int) -> None:
    firsts.note(topic, key, FirstMessage(0, at, at, now_ms), now_ms)


def find(firsts: DedupeTable, topic: str, key: str, now_ms: int) -> int | None:
    first = firsts.topics[topic].find(key, now_ms)
    return None if first is None else first.physical_offset


def test_what_was_noted_is_found_for_the_whole_window() -> None:
    firsts = table()
    note(firsts, "t", "k", 100, 0)
    note(firsts, "t", "other", 200, WINDOW_MS)
    assert find(firsts, "t", "k", WINDOW_MS) == 100
    assert find(firsts, "t", "nothing", WINDOW_MS) is None


def test_what_is_older_than_window_and_slice_is_forgotten() -> None:
    firsts = table()
    note(firsts, "t", "k", 100, 0)
    note(firsts, "t", "other", 200, WINDOW_MS + 2 * SLICE_MS)
    assert find(firsts, "t", "k", WINDOW_MS) is None
    assert firsts.count == 1


def test_pauses_between_messages_do_not_make_them_live_longer() -> None:
    firsts = table()
    gap_ms = 4 * SLICE_MS
    for number in range(20):
        note(firsts, "t", str(number), number, number * gap_ms)
    assert firsts.count == 2
    assert find(firsts, "t", "18", 19 * gap_ms) == 18
    assert find(firsts, "t", "17", 19 * gap_ms) is None


def test_a_slice_that_has_not_ended_keeps_none_outside_the_window() -> None:
    firsts = table()
    note(firsts, "t", "k", 1, 0)
    note(firsts, "t", "other", 2, WINDOW_MS + SLICE_MS - 1)
    assert firsts.count == 2
    note(firsts, "t", "next", 3, WINDOW_MS + SLICE_MS)
    assert firsts.count == 2
    assert find(firsts, "t", "k", WINDOW_MS) is None


def test_topics_do_not_know_of_each_other() -> None:
    firsts = table("a", "b")
    note(firsts, "a", "k", 100, 0)
    assert find(firsts, "b", "k", 0) is None


def test_a_full_table_forgets_the_oldest_of_the_largest_topic() -> None:
    firsts = table("big", "small", max_entries=10)
    note(firsts, "small", "s", 1, 0)
    for number in range(9):
        note(firsts, "big", f"old{number}", number, 0)
    note(firsts, "big", "new", 99, SLICE_MS)
    assert firsts.count == 2
    assert find(firsts, "big", "new", SLICE_MS) == 99
    assert find(firsts, "big", "old0", SLICE_MS) is None
    assert find(firsts, "small", "s", SLICE_MS) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 30),
            st.integers(0, 3 * SLICE_MS),
        ),
        max_size=60,
    )
)
def test_nothing_within_the_window_is_missed_and_the_count_is_true(
    notes: list[tuple[str, int, int]],
) -> None:
    firsts, now_ms = table("a", "b", max_entries=10_000), 1_000_000
    noted: dict[tuple[str, str], tuple[int, int]] = {}
    stored_at: list[int] = []
    for at, (topic, key, passed_ms) in enumerate(notes):
        now_ms += passed_ms
        note(firsts, topic, str(key), at, now_ms)
        noted[topic, str(key)] = (at, now_ms)
        stored_at.append(now_ms)
        for (of, name), (place, stored_ms) in noted.items():
            if stored_ms >= now_ms - WINDOW_MS:
                assert find(firsts, of, name, now_ms) == place
        held = [
            PLACE.unpack(packed)[2]
            for part in firsts.topics[topic].slices
            for packed in part.entries.values()
        ]
        oldest_ms = now_ms - WINDOW_MS - SLICE_MS
        assert all(stored_at[place] > oldest_ms for place in held), "no longer than promised"
        parts = [part.entries for each in firsts.topics.values() for part in each.slices]
        assert firsts.count == sum(map(len, parts))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 200)), max_size=300))
def test_the_limit_holds_whatever_comes(notes: list[tuple[str, int]]) -> None:
    firsts = table("a", "b", max_entries=20)
    for at, (topic, key) in enumerate(notes):
        note(firsts, topic, str(key), at, at * 100)
        assert firsts.count <= 20
