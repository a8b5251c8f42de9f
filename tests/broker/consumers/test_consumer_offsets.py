import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.consumers import consumer_offsets
from aerobee.broker.consumers.consumer_offsets import (
    LEAST_OF_GROUP,
    NO_OFFSET,
    OWN_GROUPS,
    ClampedOffset,
    ConsumerOffsetTable,
    share,
)
from aerobee.broker.errors import LimitReached, NoPermission
from aerobee.broker.saved.documents import PIECE_ENTRIES
from aerobee.remoting.wire import relaxed_json
from aerobee.store.format.system_names import REVIVE_GROUP

JAVA_4_9 = b"""{
\t"offsetTable":{
\t\t"TopicTest@GID_A":{0:250,1:251
\t\t}
\t}
}"""
JAVA_5_4 = b"""{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000000
\t},
\t"groupTopicMap":{
\t\t"GID_A":[
\t\t\t"TopicTest"
\t\t]
\t},
\t"offsetTable":{
\t\t"TopicTest@GID_A":{
\t\t\t0:250,
\t\t\t1:251
\t\t}
\t}
}"""


def written_by(offsets: ConsumerOffsetTable) -> dict[str, Any]:
    """What the file holds."""
    written: dict[str, Any] = json.loads(b"".join(offsets.pieces()))
    return written


def document(content: bytes) -> dict[str, Any]:
    decoded = relaxed_json.decode(content)
    assert isinstance(decoded, dict)
    return decoded


def test_a_commit_is_what_the_next_query_finds() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 7, 0)
    assert offsets.query("g", "t", 0) == 7
    assert offsets.query("g", "t", 1) == NO_OFFSET
    assert offsets.query("g", "u", 0) == NO_OFFSET
    assert offsets.queues("g", "t") == {0: 7}


def test_a_smaller_offset_replaces_a_larger_one() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 7, 0)
    offsets.commit("g", "t", 0, 3, 0)
    assert offsets.query("g", "t", 0) == 3


@pytest.mark.parametrize("negative", [-1, -2, -(2**63)])
def test_a_negative_offset_means_none(negative: int) -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, negative, 0)
    assert offsets.query("g", "t", 0) == NO_OFFSET


def test_the_version_moves_every_500_commits() -> None:
    offsets = ConsumerOffsetTable()
    for number in range(499):
        offsets.commit("g", "t", 0, number, 1)
    assert offsets.version.counter == 0
    offsets.commit("g", "t", 0, 499, 77)
    assert (offsets.version.counter, offsets.version.timestamp) == (1, 77)


@pytest.mark.parametrize("content", [JAVA_4_9, JAVA_5_4])
def test_the_files_of_both_java_lines_load(content: bytes) -> None:
    offsets = ConsumerOffsetTable()
    offsets.load(document(content))
    assert offsets.query("GID_A", "TopicTest", 0) == 250
    assert offsets.query("GID_A", "TopicTest", 1) == 251
    assert offsets.count == 2


def test_what_is_written_is_json_with_the_derived_map() -> None:
    offsets = ConsumerOffsetTable()
    offsets.load(document(JAVA_5_4))
    offsets.commit("GID_B", "TopicTest", 3, 9, 0)
    written = written_by(offsets)
    assert written["groupTopicMap"] == {"GID_A": ["TopicTest"], "GID_B": ["TopicTest"]}
    assert written["offsetTable"]["TopicTest@GID_B"] == {"3": 9}
    assert written["dataVersion"] == {
        "counter": 0,
        "stateVersion": 0,
        "timestamp": 1700000000000,
    }


def test_a_table_that_changes_while_it_is_written_gives_what_it_had_or_something_newer() -> None:
    offsets = ConsumerOffsetTable()
    for number in range(1_000):
        offsets.commit(f"g{number % 100}", f"t{number // 100}", 0, 1, 0)
    pieces = offsets.pieces()
    text = [next(pieces) for _ in range(5)]
    offsets.delete_group("g7")
    offsets.delete_topic("t9")
    offsets.commit("new", "t0", 0, 5, 0)
    for number in range(1_000):
        offsets.commit("g1", f"t{number // 100}", 0, 2, 0)
    written = json.loads(b"".join(text) + b"".join(pieces))
    left = {f"t{topic}@g{group}" for topic in range(9) for group in range(100) if group != 7}
    assert left <= set(written["offsetTable"])
    assert all(queues["0"] in (1, 2, 5) for queues in written["offsetTable"].values())
    ConsumerOffsetTable().load(written)


def test_no_piece_of_the_text_holds_many_entries() -> None:
    offsets = ConsumerOffsetTable()
    for number in range(1_000):
        offsets.commit("g", f"t{number}", 0, 1, 0)
    assert max(piece.count(b"@g") for piece in offsets.pieces()) <= PIECE_ENTRIES


def test_resets_that_nobody_has_got_yet_are_saved_with_the_offsets() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 9, 0)
    assert "resets" not in written_by(offsets)
    offsets.reset("g", "t", 0, 3, 0)
    offsets.begin_again("other", "made_anew", [0, 1])
    before = offsets.changes
    again = ConsumerOffsetTable()
    again.load(written_by(offsets))
    assert again.resets == offsets.resets
    assert not again.commit("g", "t", 0, 9, 0)
    assert offsets.take_reset("g", "t", 0) == again.take_reset("g", "t", 0) == 3
    assert offsets.changes == before + 1, "one that was got is to be saved as well"
    assert offsets.take_reset("g", "t", 0) is None
    assert offsets.changes == before + 1


def test_unknown_fields_of_a_file_are_kept() -> None:
    offsets = ConsumerOffsetTable()
    offsets.load({"offsetTable": {}, "later": {"a": 1}})
    assert written_by(offsets)["later"] == {"a": 1}


@pytest.mark.parametrize(
    "broken",
    [
        {"offsetTable": []},
        {"offsetTable": {"t@g": {"x": 1}}},
        {"offsetTable": {"t@g": 5}},
        {"resets": {"t@g": 5}},
        {"resets": {"t@g@x": 5}},
    ],
)
def test_a_broken_document_leaves_the_table_as_it_was(broken: dict[str, Any]) -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 1, 0)
    with pytest.raises((ValueError, AttributeError)):
        offsets.load(broken)
    assert offsets.query("g", "t", 0) == 1


def test_offsets_beyond_the_end_of_a_queue_are_pulled_back() -> None:
    offsets = ConsumerOffsetTable()
    for queue_id, at in enumerate((5, 10, 11, -1)):
        offsets.commit("g", "t", queue_id, at, 0)
    cut = list(chain(*offsets.clamp(lambda topic, queue_id: 10)))
    assert cut == [ClampedOffset("t", "g", 2, 11, 10)]
    assert offsets.queues("g", "t") == {0: 5, 1: 10, 2: 10, 3: -1}


def test_many_offsets_are_pulled_back_in_steps_and_what_is_deleted_meanwhile_stays_so() -> None:
    offsets = ConsumerOffsetTable()
    for number in range(5):
        for queue_id in range(consumer_offsets.CLAMP_STEP):
            offsets.commit("g", f"t{number}", queue_id, 11, 0)
    steps = offsets.clamp(lambda topic, queue_id: 10)
    assert {(cut.topic, cut.max_offset) for cut in next(steps)} == {("t0", 10)}
    offsets.delete_topic("t3")
    offsets.commit("g", "new", 0, 7, 0)
    assert [{cut.topic for cut in step} for step in steps] == [{"t1"}, {"t2"}, {"t4"}, set()]
    assert offsets.queues("g", "t3") == {}


def test_a_reset_to_an_end_that_the_queue_has_no_more_is_pulled_back() -> None:
    offsets = ConsumerOffsetTable()
    for queue_id, at in enumerate((5, 11)):
        offsets.reset("g", "t", queue_id, at, 0)
    offsets.begin_again("g", "t", [2])
    again = ConsumerOffsetTable()
    again.load(written_by(offsets))
    list(again.clamp(lambda topic, queue_id: 10))
    assert [again.take_reset("g", "t", queue_id) for queue_id in range(3)] == [5, 10, 0]


def test_the_marks_of_spark_sinks_are_not_pulled_back() -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("SPARK_SINK_orders", "t", 500, 7, 0)
    assert list(offsets.clamp(lambda topic, queue_id: 0)) == [[]]
    assert offsets.query("SPARK_SINK_orders", "t", 500) == 7


def test_no_reset_is_in_the_way_of_the_marks_of_spark_sinks() -> None:
    offsets = ConsumerOffsetTable()
    offsets.reset("SPARK_SINK_orders", "t", 0, 0, 0)
    assert offsets.commit("SPARK_SINK_orders", "t", 0, 7, 0), "it never pulls"
    offsets.resets["SPARK_SINK_orders", "t", 0] = 0  # as an earlier version made it
    again = ConsumerOffsetTable()
    again.load(written_by(offsets))
    assert again.commit("SPARK_SINK_orders", "t", 0, 8, 0)


def test_deleting_a_topic_or_a_group_takes_its_offsets() -> None:
    offsets = ConsumerOffsetTable()
    for topic, group in (("t", "g"), ("t", "h"), ("u", "g"), ("tt", "gg")):
        offsets.commit(group, topic, 0, 1, 0)
    offsets.delete_topic("t")
    assert set(offsets.pairs()) == {("u", "g"), ("tt", "gg")}
    offsets.delete_group("g")
    assert set(offsets.pairs()) == {("tt", "gg")}
    assert offsets.count == 1


@pytest.mark.parametrize("gone", ["topic", "group"])
def test_what_is_deleted_while_a_topic_is_to_begin_again_begins_as_any_other(gone: str) -> None:
    offsets = ConsumerOffsetTable()
    offsets.commit("g", "t", 0, 7, 0)
    offsets.delete_topic("t")
    offsets.begin_again("g", "t", [0])
    offsets.begin_again("other", "other", [0])
    before = offsets.changes
    if gone == "topic":
        offsets.delete_topic("t")
    else:
        offsets.delete_group("g")
    assert offsets.resets == {("other", "other", 0): 0}
    assert offsets.changes > before
    assert offsets.commit("g", "t", 0, 9, 0), "no reset is in its way"


def test_a_reset_for_which_there_is_no_room_leaves_the_one_before() -> None:
    offsets = ConsumerOffsetTable(max_entries=1)
    offsets.begin_again("g", "t", [0])
    offsets.commit("other", "t", 0, 1, 0)
    with pytest.raises(LimitReached):
        offsets.reset("g", "t", 0, 5, 0)
    assert offsets.take_reset("g", "t", 0) == 0


def test_topics_that_nobody_makes_again_keep_no_others_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_offsets, "RESETS_MAX", 4)
    offsets = ConsumerOffsetTable()
    offsets.reset("asked", "t", 0, 3, 0)
    for number in range(4):
        offsets.begin_again("g", f"t{number}", [0, 1])
    assert list(offsets.resets) == [("asked", "t", 0), *(("g", *key) for key in LAST)]


LAST = [("t2", 1), ("t3", 0), ("t3", 1)]


def test_topics_of_a_group_are_sorted() -> None:
    offsets = ConsumerOffsetTable()
    for topic in ("b", "a"):
        offsets.commit("g", topic, 0, 1, 0)
    offsets.commit("h", "c", 0, 1, 0)
    assert offsets.topics_of("g") == ["a", "b"]


def test_a_full_table_takes_no_new_entry_but_every_old_one() -> None:
    offsets = ConsumerOffsetTable(max_entries=2)
    offsets.commit("g", "t", 0, 1, 0)
    offsets.commit("h", "t", 0, 1, 0)
    for topic, queue_id in (("t", 2), ("u", 0)):
        with pytest.raises(LimitReached, match=r"2 is the limit; .*maxConsumerOffsets=2"):
            offsets.commit("g", topic, queue_id, 1, 0)
    offsets.commit("g", "t", 0, 5, 0)
    assert offsets.query("g", "t", 0) == 5
    assert sorted(offsets.pairs()) == [("t", "g"), ("t", "h")]


def test_every_change_shows_in_the_counter_of_changes() -> None:
    offsets = ConsumerOffsetTable()
    seen = [offsets.changes]
    offsets.commit("g", "t", 0, 9, 0)
    seen.append(offsets.changes)
    list(offsets.clamp(lambda topic, queue_id: 3))
    seen.append(offsets.changes)
    offsets.delete_topic("t")
    seen.append(offsets.changes)
    assert seen == sorted(set(seen))


entries = st.lists(
    st.tuples(
        st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 3), st.integers(-1, 2**62)
    )
)


@given(entries)
def test_a_saved_table_loads_as_it_was(commits: list[tuple[str, str, int, int]]) -> None:
    offsets = ConsumerOffsetTable()
    for group, topic, queue_id, at in commits:
        offsets.commit(group, topic, queue_id, at, 0)
    again = ConsumerOffsetTable()
    again.load(written_by(offsets))
    assert again.entries == offsets.entries
    assert again.count == offsets.count


def test_no_group_takes_the_places_of_all() -> None:
    offsets = ConsumerOffsetTable(max_entries=20)
    for queue_id in range(2):
        offsets.commit("greedy", "t", queue_id, 1, 0)
    with pytest.raises(LimitReached, match="greedy"):
        offsets.commit("greedy", "t", 2, 1, 0)
    offsets.commit("greedy", "t", 1, 9, 0)
    offsets.commit("modest", "t", 2, 1, 0)
    restored = ConsumerOffsetTable()
    restored.load(written_by(offsets))
    assert restored.by_group == offsets.by_group == {"greedy": 2, "modest": 1}
    offsets.delete_group("greedy")
    assert (offsets.by_group, offsets.count) == ({"modest": 1}, 1)


@pytest.mark.parametrize("group", sorted(OWN_GROUPS))
def test_offsets_of_the_broker_itself_are_moved_by_its_services_alone(group: str) -> None:
    table = ConsumerOffsetTable()
    table.commit_own(group, "t", 0, 5, 0)
    for move in (table.commit, table.commit_popped, table.reset):
        with pytest.raises(NoPermission):
            move(group, "t", 0, 9, 0)
    with pytest.raises(NoPermission):
        table.delete_group(group)
    assert table.query(group, "t", 0) == 5
    assert table.count == 1


def test_groups_that_take_all_they_may_leave_places_to_the_next() -> None:
    offsets = ConsumerOffsetTable(max_entries=100_000)
    for number in range(12):
        with pytest.raises(LimitReached, match="is the limit"):
            take_all(offsets, f"greedy {number}")
    assert offsets.count < 80_000
    for queue_id in range(LEAST_OF_GROUP):
        offsets.commit("modest", "t", queue_id, 1, 0)


def take_all(offsets: ConsumerOffsetTable, group: str) -> None:
    for queue_id in range(offsets.max_entries + 1):
        offsets.commit(group, "t", queue_id, 1, 0)


def test_a_full_table_takes_the_offsets_of_the_broker_itself() -> None:
    offsets = ConsumerOffsetTable(max_entries=1)
    offsets.commit("g", "t", 0, 1, 0)
    for group in OWN_GROUPS:
        offsets.commit_own(group, "t", 0, 1, 0)
    with pytest.raises(LimitReached):
        offsets.commit("h", "t", 0, 1, 0)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 100))
def test_a_share_is_at_most_what_one_may_have_and_never_all_that_is_left(
    most: int, left: int, least: int
) -> None:
    given_ = share(most, left, least)
    assert given_ <= most
    assert given_ <= max(least, left // 8)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=300))
def test_whoever_takes_leaves_some_to_the_next(takers: list[str]) -> None:
    places, held = 1_000, dict.fromkeys("abcdefgh", 0)
    for taker in takers:
        while held[taker] < share(500, places - sum(held.values()), 4):
            held[taker] += 1
    assert sum(held.values()) < places * 7 // 10


def test_a_slave_of_a_group_has_the_offsets_of_its_master_and_no_others() -> None:
    table = ConsumerOffsetTable()
    for queue_id, at in enumerate((5, 6, 7)):
        table.commit("g", "t", queue_id, at, 0)
    table.commit("gone", "t", 0, 9, 0)
    table.commit_own(REVIVE_GROUP, "revive", 0, 8, 0)
    changes = table.changes
    theirs = {"t@g": {0: 3, 1: 6}, "u@g": {0: 1}}
    for _ in table.replace(theirs):
        pass
    assert table.entries == theirs
    assert (table.count, table.by_group) == (3, {"g": 3})
    assert table.groups_of("t") == ["g"]
    assert table.changes > changes
    changes = table.changes
    for _ in table.replace(theirs):
        pass
    assert table.changes == changes


def test_offsets_that_are_missing_are_taken_and_no_others() -> None:
    table = ConsumerOffsetTable()
    table.commit("g", "t", 0, 5, 0)
    for _ in table.add({"t@g": {0: 9, 1: 2}, f"revive@{REVIVE_GROUP}": {0: 4}}):
        pass
    assert table.entries == {"t@g": {0: 5, 1: 2}}
    assert table.count == 2
