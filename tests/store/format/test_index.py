from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.index import (
    INDEX_ENTRY,
    INDEX_HEAD,
    TIME_DIFF_MAX,
    IndexHead,
    IndexShape,
    KeyHasher,
    file_bytes,
    index_key,
    key_hash,
    keys_of,
    positive,
)
from aerobee.store.format.properties import encode
from aerobee.store.format.tags import java_hash

UNIQUE = "7F000001AAAA18B4AAC2000000000001"
WORDS = st.text(st.characters(exclude_characters="\x00\x01\x02 ", codec="utf-8"), min_size=1)
IDS = st.from_regex(r"[0-9A-F]{20}0000[0-9A-F]{8}", fullmatch=True)


def test_the_default_file_has_its_known_length() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040


def test_slots_and_entries_lie_where_other_brokers_put_them() -> None:
    shape = IndexShape(5_000_000, 20_000_000)
    assert shape.slot_position(3_468_874) == 40 + 4 * 3_468_874
    assert shape.entry_position(1) == 20_000_060


def test_counting_starts_at_one() -> None:
    assert IndexHead().index_count == 1
    assert INDEX_HEAD.offset["index_count"] == 36
    assert INDEX_ENTRY.offset["previous"] == 16


def test_keys_hash_as_the_java_broker_hashes_them() -> None:
    slots = 5_000_000
    keys = [
        (index_key("TopicA", UNIQUE), 0x5EFA67CA, 3468874),
        (index_key("TopicA", "k1"), 0x717125C9, 3240649),
        (index_key("TopicA", "k2"), 0x717125C8, 3240648),
        ("TopicA#T#TagA", 0x72BBCF67, 4910951),
    ]
    for key, value, slot in keys:
        assert key_hash(key) == value
        assert key_hash(key) % slots == slot


def test_the_number_without_an_absolute_value_counts_as_zero() -> None:
    assert java_hash("polygenelubricants") == -0x8000_0000
    assert key_hash("polygenelubricants") == 0
    assert positive(-5) == 5
    assert positive(0xFFFF_FFFB) == 5


def test_a_message_is_found_by_its_unique_key_and_then_by_each_word_of_its_keys() -> None:
    assert keys_of(f"KEYS\x01k1  k2 \x02UNIQ_KEY\x01{UNIQUE}\x02".encode()) == [
        UNIQUE.encode(),
        b"k1",
        b"k2",
    ]
    assert keys_of(b"TAGS\x01a\x02") == []
    assert keys_of(b"") == []


def test_names_that_end_alike_and_empty_values_are_no_keys() -> None:
    assert keys_of(b"MYKEYS\x01x\x02") == []
    assert keys_of(b"KEYS\x01x\x02MYKEYS\x01y\x02") == [b"x"]
    assert keys_of(b"a\x01KEYS\x01x") == []
    assert keys_of(b"KEYS\x01x\x02KEYS\x01\x02") == [b"x"]
    assert keys_of(b"KEYS\x01x\x02KEYS\x01y") == [b"y"]


@given(topic=WORDS, unique=st.one_of(IDS, WORDS), keys=st.lists(st.one_of(WORDS, IDS)))
def test_remembered_pieces_give_the_hash_of_the_whole(
    topic: str, unique: str, keys: list[str]
) -> None:
    properties = encode({"UNIQ_KEY": unique, "KEYS": " ".join(keys)}).encode()
    expected = [key_hash(index_key(topic, key)) for key in [unique, *keys]]
    hasher = KeyHasher()
    assert hasher.hashes(topic, properties) == expected
    assert hasher.hashes(topic, properties) == expected


@given(st.integers(0, 200))
def test_keys_of_any_length_are_hashed(length: int) -> None:
    hasher = KeyHasher()
    for letter in "zé":
        key = "a" * length + letter
        properties = f"KEYS\x01{key}\x02".encode()
        assert hasher.hashes("T", properties) == [key_hash(f"T#{key}")]


def test_more_pieces_than_are_remembered_do_no_harm() -> None:
    hasher = KeyHasher()
    for number in range(0, 100_000, 7):
        key = f"{number:020d}{number:08X}{number:04X}"
        assert hasher.hashes("T", f"UNIQ_KEY\x01{key}\x02".encode()) == [key_hash(f"T#{key}")]


def test_many_topics_and_many_clients_do_not_multiply() -> None:
    """Each of 150 × 150 pairs is a sum of what was remembered of its topic and of its client."""
    hasher = KeyHasher()
    for turn in range(2):
        with patch.object(KeyHasher, "learn", autospec=True, side_effect=KeyHasher.learn) as slow:
            for client in range(150):
                key = f"7F0000010001{client:08X}000102030405"
                properties = f"UNIQ_KEY\x01{key}\x02".encode()
                for topic in range(150):
                    assert hasher.hashes(f"t{topic}", properties) == [key_hash(f"t{topic}#{key}")]
        assert slow.call_count <= (0 if turn else 300)


def test_bytes_that_are_no_text_are_hashed_as_their_replacement() -> None:
    raw = b"UNIQ_KEY\x01" + b"A" * 31 + b"\xff\x02"
    hasher = KeyHasher()
    hasher.hashes("T", b"UNIQ_KEY\x01" + b"A" * 32 + b"\x02")
    assert hasher.hashes("T", raw) == [key_hash("T#" + "A" * 31 + "\ufffd")]


def test_the_records_of_pops_are_not_found_by_their_keys() -> None:
    """Neither in the queue of the timers nor in the revive log; what looks alike elsewhere is."""
    wheel, log = "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster"
    hasher = KeyHasher()
    for key in ("t@0@5@g@1700000000000@b@ck", "t@0@5@g@1700000000000@b@ack"):
        own = f"TAGS\x01ck\x02UNIQ_KEY\x01{key}\x02".encode()
        assert hasher.hashes(wheel, own) == hasher.hashes(log, own) == []
        assert hasher.hashes("t", own) == [key_hash(f"t#{key}")]
        named = own + b"KEYS\x01k\x02"
        assert hasher.hashes(wheel, named) == [key_hash(f"{wheel}#k")]
    other = f"UNIQ_KEY\x01{UNIQUE}\x02".encode()
    assert hasher.hashes(wheel, other) == [key_hash(f"{wheel}#{UNIQUE}")]


def test_the_time_of_an_entry_is_a_signed_number_of_seconds() -> None:
    assert TIME_DIFF_MAX == 2**31 - 1
