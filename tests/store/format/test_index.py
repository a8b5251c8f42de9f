from store.format.index import INDEX_ENTRY, INDEX_HEAD, IndexHead, file_bytes, index_key, key_hash


def test_the_default_file_has_its_known_length() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040


def test_counting_starts_at_one() -> None:
    assert IndexHead().index_count == 1
    assert INDEX_HEAD.offset["index_count"] == 36
    assert INDEX_ENTRY.offset["previous"] == 16


def test_keys_hash_as_the_java_broker_hashes_them() -> None:
    slots = 5_000_000
    keys = [
        (index_key("TopicA", "7F000001AAAA18B4AAC2000000000001"), 0x5EFA67CA, 3468874),
        (index_key("TopicA", "k1"), 0x717125C9, 3240649),
        (index_key("TopicA", "k2"), 0x717125C8, 3240648),
        ("TopicA#T#TagA", 0x72BBCF67, 4910951),
    ]
    for key, value, slot in keys:
        assert key_hash(key) == value
        assert key_hash(key) % slots == slot


def test_the_number_without_an_absolute_value_counts_as_zero() -> None:
    assert key_hash("polygenelubricants") == 0
