"""Messages on the wire: golden bytes, round trips, ids."""

from datetime import UTC, datetime
from zlib import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.message import Message
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.messages import UniqIds, batch_item, month_of, property_string, received
from aerobee.errors import ConfigurationError, MessageUnreadableError, TransportError
from aerobee.store.format import properties, record
from aerobee.store.format.batch import batch_items

EXAMPLE = bytes.fromhex(
    "00000065daa320a758932aac0000000100000000"
    "0000000000000002000000000000012c000000000000018bcfe568007f0000010000c350"
    "0000018bcfe568017f00000100002a9f00000000000000000000000000000002"
    "68690154000754414753014102"
)
"""Written by the Java broker 5.3.3: topic T, body hi, tag A."""


def stored(body: bytes, sys_flag: int, named: dict[str, str], queue_offset: int = 5) -> bytes:
    draft = record.MessageDraft(
        topic="T",
        queue_id=1,
        body=body,
        properties=properties.encode(named).encode(),
        born_host=bytes([127, 0, 0, 1, 0, 0, 0xC3, 0x50]),
        store_host=bytes(15) + b"\x01" + (10911).to_bytes(4, "big"),
        sys_flag=sys_flag,
    )
    return record.encode(draft, queue_offset, 300, 1_700_000_000_001)


def test_a_record_of_the_java_broker_is_read() -> None:
    (message,) = received(EXAMPLE, "broker-a", None)
    assert message.queue == MessageQueue("T", "broker-a", 1)
    assert (message.body, message.tag, message.queue_offset) == (b"hi", "A", 2)
    assert message.message_id == "7F00000100002A9F000000000000012C"
    assert message.message_id == message.offset_message_id
    assert message.commit_log_offset == 300
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (message.stored_at - message.born_at).microseconds == 1000
    assert (message.born_host, message.store_host) == ("127.0.0.1:50000", "127.0.0.1:10911")
    assert message.original_topic == "T"
    assert message.keys == ()


def test_several_records_come_in_order_and_with_their_clients_ids() -> None:
    body = stored(b"a", 0, {"UNIQ_KEY": "id-a", "KEYS": "k1 k2"}) + stored(
        compress(b"b"), 0x301, {"WAIT": "false", "__SHARDINGKEY": "o", "RETRY_TOPIC": "R"}, 6
    )
    first, second = received(body, "b", None)
    assert (first.message_id, first.keys, first.wait_store_ok) == ("id-a", ("k1", "k2"), True)
    assert (second.body, second.wait_store_ok, second.ordering_key) == (b"b", False, "o")
    assert second.original_topic == "R"
    assert second.store_host == "[::1]:10911"
    assert len(second.offset_message_id) == 56


def test_a_message_whose_body_does_not_unpack_says_so_and_the_others_are_read() -> None:
    junk = stored(b"junk", 0x301, {}, 6)
    messages = list(received(stored(b"a", 0, {}) + junk + stored(b"c", 0, {}, 7), "b", None))
    assert [message.body for message in messages] == [b"a", b"junk", b"c"]
    whys = [message.unreadable for message in messages]
    assert (whys[0], whys[2]) == (None, None)
    assert "does not unpack as zlib" in str(whys[1])
    error = MessageUnreadableError(messages[1])
    assert str(error).startswith("message in T/b/1 at 6: the body does not unpack as zlib")
    assert (error.topic, error.broker, error.address) == ("T", "b", "[::1]:10911")


def test_a_message_whose_body_is_not_what_was_stored_says_so() -> None:
    altered = bytearray(stored(b"a", 0, {}, 6))
    altered[altered.index(b"a")] ^= 1
    whole, damaged = received(stored(b"a", 0, {}) + bytes(altered), "b", None)
    assert (whole.body, whole.unreadable) == (b"a", None)
    assert (damaged.body, str(damaged.unreadable)[:19]) == (b"`", "the body is damaged")


@given(cut=st.integers(1, len(EXAMPLE) - 1))
def test_a_record_that_is_not_whole_is_the_brokers_fault(cut: int) -> None:
    with pytest.raises(TransportError):
        list(received(EXAMPLE[:cut], "broker-a", None))


def test_a_batch_item_has_the_bytes_that_java_writes() -> None:
    item = batch_item(3, b"hi", property_string(Message("T", b"hi", tag="A"), ""))
    assert item == bytes.fromhex(
        "00000029 00000000 00000000 00000003 00000002 6869 0011"
        "57414954 01 74727565 02 54414753 01 41 02".replace(" ", "")
    )


@given(
    body=st.binary(min_size=1, max_size=50),
    tag=st.none() | st.text("ab", min_size=1, max_size=5),
    keys=st.lists(st.text("xyz", min_size=1, max_size=5), max_size=3),
    named=st.dictionaries(
        st.text("pqr", min_size=1), st.text("äö x", min_size=1).filter(str.strip), max_size=3
    ),
)
def test_a_batch_body_splits_into_what_went_in(
    body: bytes, tag: str | None, keys: list[str], named: dict[str, str]
) -> None:
    message = Message("T", body, tag=tag, keys=keys, properties=named)
    both = [batch_item(0, message.body, property_string(message, one)) for one in ("one", "two")]
    items = list(batch_items(b"".join(both)))
    assert [bytes(item[1]) for item in items] == [body, body]
    found = properties.decode(items[1][2])
    assert found.pop("UNIQ_KEY") == "two"
    assert (found.pop("TAGS", None), found.pop("KEYS", "").split()) == (tag, keys)
    assert found.pop("WAIT") == "true"
    assert found == named


def test_properties_that_no_record_can_hold_are_refused() -> None:
    property_string(Message("T", b"x", properties={"a": "b" * 32_000}), "id")
    with pytest.raises(ConfigurationError, match="at most 32767"):
        property_string(Message("T", b"x", properties={"a": "ä" * 16_400}), "id")


def test_the_own_properties_cannot_be_overwritten() -> None:
    message = Message("T", b"x", properties={"UNIQ_KEY": "mine"})
    assert properties.decode(property_string(message, "ours"))["UNIQ_KEY"] == "ours"


def test_a_delay_level_is_a_property_and_none_is_no_property() -> None:
    for level, expected in ((3, "3"), (0, None)):
        text = property_string(Message("T", b"x", delay_level=level), "id")
        assert properties.decode(text).get("DELAY") == expected


def test_an_id_has_the_layout_that_tools_decode() -> None:
    wall_ms = int(datetime(2025, 3, 10, 12, 0, 0, 123_000).astimezone().timestamp() * 1000)
    ids = UniqIds(bytes([192, 168, 1, 10]), 12345, 0x18B4AAC2, counter=41)
    made = ids.next(wall_ms)
    assert made == "C0A8010A303918B4AAC230EC6A7B002A"
    assert ids.next(wall_ms) == made[:-1] + "B"


@given(st.integers(1_600_000_000_000, 1_900_000_000_000))
def test_a_month_holds_its_instants_and_touches_the_next(wall_ms: int) -> None:
    first, after = month_of(wall_ms)
    assert first <= wall_ms < after
    assert month_of(after)[0] == after
    assert 28 * 86_400_000 - 3_600_000 <= after - first <= 31 * 86_400_000 + 3_600_000


def test_ids_stay_unique_beyond_the_counter_and_the_month() -> None:
    ids = UniqIds(bytes(4), 1, 1, counter=0xFFF0)
    end = month_of(1_700_000_000_000)[1]
    made = [ids.next(end - 16 + n) for n in range(64)]
    assert len(set(made)) == 64
    assert {len(one) for one in made} == {32}


def test_many_ids_at_once_are_those_that_come_one_by_one() -> None:
    one, many = (UniqIds(bytes(4), 1, 1, counter=0xFFF0) for _ in range(2))
    wall_ms = 1_700_000_000_000
    expected = [one.next(wall_ms) for _ in range(50)]
    assert many.many(wall_ms, 20) + many.many(wall_ms, 30) == expected


def test_a_priority_is_a_property_and_comes_back() -> None:
    text = property_string(Message("T", b"x", priority=0), "id")
    assert properties.decode(text)["_SYS_MSG_PRIORITY_"] == "0"
    assert "_SYS_MSG_PRIORITY_" not in property_string(Message("T", b"x"), "id")
    told = [{"_SYS_MSG_PRIORITY_": "0"}, {"_SYS_MSG_PRIORITY_": "7"}, {}]
    told += [{"_SYS_MSG_PRIORITY_": "-7"}, {"_SYS_MSG_PRIORITY_": "seven"}]
    body = b"".join(stored(b"x", 0, named) for named in told)
    assert [one.priority for one in received(body, "b", None)] == [0, 7, None, None, None]
