"""Bytes written by the Java broker; every reader and writer here must agree with them."""

from aerobee.store.format import record
from aerobee.store.format.batch import batch_items
from aerobee.store.format.checkpoint import CHECKPOINT, Checkpoint
from aerobee.store.format.index import INDEX_ENTRY, INDEX_HEAD, IndexEntry, IndexHead
from aerobee.store.format.message_id import offset_id, read_offset_id
from aerobee.store.format.properties import decode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import BLANK, UNIT, DelayLevels, code_of
from tests.kit.records import kind_or_size

STORE_HOST = bytes.fromhex("0a00000100002a9f")
PROPERTIES = b"KEYS\x01k1 k2\x02UNIQ_KEY\x017F000001AAAA18B4AAC2000000000001\x02TAGS\x01TagA\x02"
RECORD_54 = bytes.fromhex(
    "000000a5 daa320a7 3610a686 00000003 00000000"
    "0000000000000000 0000000000000000 00000000"
    "0000018bcfe56800 0a000007 0000c350"
    "0000018bcfe56801 0a000001 00002a9f"
    "00000000 0000000000000000"
    "00000005 68656c6c6f"
    "06 546f70696341"
    "003f 4b45595301 6b31206b3202 554e49515f4b455901"
    "3746303030303031414141413138423441414332303030303030303030303031 02"
    "5441475301 5461674102"
)
RECORD_49 = bytes.fromhex("000000a4") + RECORD_54[4:100] + bytes.fromhex("003e") + RECORD_54[102:-1]
RECORD_533 = bytes.fromhex(
    "00000065 daa320a7 58932aac 00000001 00000000 0000000000000002 000000000000012c 00000000"
    "0000018bcfe56800 7f000001 0000c350 0000018bcfe56801 7f000001 00002a9f"
    "00000000 0000000000000000 00000002 6869 01 54 0007 54414753 01 41 02"
)
BATCH_ITEM = bytes.fromhex(
    "0000002c 00000000 00000000 00000003 00000002 6869 0014"
    "57414954 01 74727565 02 54414753 01 74616741 02"
)


def draft(properties: bytes) -> MessageDraft:
    return MessageDraft(
        topic="TopicA",
        queue_id=3,
        body=b"hello",
        properties=properties,
        born_host=bytes.fromhex("0a0000070000c350"),
        store_host=STORE_HOST,
        born_timestamp=1_700_000_000_000,
    )


def test_a_record_of_5_4_is_written_byte_for_byte() -> None:
    assert record.encode(draft(PROPERTIES), 0, 0, 1_700_000_000_001) == RECORD_54
    assert len(RECORD_54) == 165


def test_a_record_of_4_9_lacks_the_last_separator_which_is_always_written_here() -> None:
    assert record.encode(draft(PROPERTIES[:-1]), 0, 0, 1_700_000_000_001) == RECORD_54
    assert record.read(RECORD_49).properties == PROPERTIES[:-1]


def test_a_record_of_5_3_3_is_written_and_read() -> None:
    message = MessageDraft(
        topic="T",
        queue_id=1,
        body=b"hi",
        properties=b"TAGS\x01A\x02",
        born_host=bytes.fromhex("7f0000010000c350"),
        store_host=bytes.fromhex("7f00000100002a9f"),
        born_timestamp=1_700_000_000_000,
    )
    assert record.encode(message, 2, 300, 1_700_000_000_001) == RECORD_533
    assert kind_or_size(RECORD_533, 0, 300) == 101
    assert offset_id(message.store_host, 300) == "7F00000100002A9F000000000000012C"


def test_a_record_is_read() -> None:
    for data in (RECORD_54, RECORD_49):
        found = record.read(data)
        assert kind_or_size(data, 0, 0) == found.size == len(data)
        assert (found.topic, found.body, found.queue_id) == ("TopicA", b"hello", 3)
        assert found.store_timestamp == 1_700_000_000_001
        assert decode(found.properties) == decode(PROPERTIES)


def test_a_long_topic_makes_a_v2_record() -> None:
    message = draft(b"")
    message.topic = "%RETRY%" + "g" * 121
    data = record.encode(message, 0, 0, 0)
    assert data[4:8].hex() == "daa320ab"
    assert data[93:95].hex() == "0080"
    assert len(data) == 92 + 5 + 128


def test_a_unit_is_written_byte_for_byte() -> None:
    code = code_of("TopicA", PROPERTIES, 1_700_000_000_001, DelayLevels())
    unit = bytes.fromhex("0000000000000000 000000a5 000000000027a807")
    assert UNIT.pack(0, 165, code) == unit
    assert tags_code_of(PROPERTIES) == code == 2_598_919
    assert UNIT.pack(0, 1, -1).hex()[-16:] == "f" * 16
    assert bytes.fromhex("0000000000000000 7fffffff 0000000000000000") == BLANK


def test_the_offset_id_names_host_and_place() -> None:
    assert offset_id(STORE_HOST, 0) == "0A00000100002A9F0000000000000000"
    assert read_offset_id("0A00000100002A9F0000000000000000") == (STORE_HOST, 0)


def test_the_first_index_entry_and_the_head_are_written_byte_for_byte() -> None:
    entry = "5efa67ca 0000000000000000 00000000 00000000"
    assert INDEX_ENTRY.write(IndexEntry(0x5EFA67CA, 0, 0, 0)) == bytes.fromhex(entry)
    stored = 1_700_000_000_001
    assert INDEX_HEAD.write(IndexHead(stored, stored, 0, 0, 4, 5)) == bytes.fromhex(
        "0000018bcfe56801 0000018bcfe56801 0000000000000000 0000000000000000 00000004 00000005"
    )


def test_the_checkpoint_begins_with_the_three_times() -> None:
    data = CHECKPOINT.write(Checkpoint(1, 2, 3, 4, 5))
    assert data.hex() == "".join(f"{value:016x}" for value in (1, 2, 3, 4, 5))


def test_a_batch_item_is_read() -> None:
    [(flag, body, properties)] = batch_items(BATCH_ITEM)
    assert (flag, bytes(body)) == (3, b"hi")
    assert decode(properties) == {"WAIT": "true", "TAGS": "tagA"}


def test_an_older_batch_item_is_one_byte_shorter() -> None:
    shorter = bytearray(BATCH_ITEM[:-1])
    shorter[3] -= 1
    shorter[23] -= 1
    [(_, _, properties)] = batch_items(bytes(shorter))
    assert decode(properties) == {"WAIT": "true", "TAGS": "tagA"}
