"""A copy is what encoding the message anew would give; what is no message is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.errors import RecordDamaged
from aerobee.store.format import record
from aerobee.store.format.copies import copy_bytes, encode_copies, stored, stored_messages
from aerobee.store.format.properties import closed
from aerobee.store.format.record import HOST_FLAGS, TRANSACTION_PREPARED, MessageDraft
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT
from tests.kit.records import changed

HOSTS = st.sampled_from([bytes([10, 0, 0, 1, 0, 0, 42, 159]), bytes(range(20))])
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**62)
TOPICS = st.text("Tö", min_size=1, max_size=127)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01A\x02", b"a\x01b", b"x" * 32_767])
ROOM = 1 << 20
MESSAGES = st.builds(
    MessageDraft,
    topic=TOPICS,
    queue_id=I32,
    body=st.binary(max_size=50),
    properties=PROPERTIES,
    born_host=HOSTS,
    store_host=HOSTS,
    flag=I32,
    sys_flag=I32.map(lambda flags: flags & ~TRANSACTION_PREPARED),
    born_timestamp=I64,
    reconsume_times=I32,
    prepared_transaction_offset=I64,
)


@given(
    st.lists(st.tuples(MESSAGES, PROPERTIES), min_size=1, max_size=5), TOPICS, OFFSETS, OFFSETS, I64
)
def test_copies_are_the_messages_encoded_anew(
    drafts: list[tuple[MessageDraft, bytes]],
    topic: str,
    queue_offset: int,
    physical_offset: int,
    now_ms: int,
) -> None:
    whole = b"".join(record.encode(one, 7, 9, 11) for one, _ in drafts)
    messages, damage = stored_messages([memoryview(whole)])
    assert damage is None
    assert [one.topic for one in messages] == [one.topic for one, _ in drafts]
    assert [one.properties for one in messages] == [closed(one.properties) for one, _ in drafts]
    copies = [(one, new) for one, (_, new) in zip(messages, drafts, strict=True)]
    made = encode_copies(copies, topic, 3, queue_offset, physical_offset, now_ms, ROOM)
    data, units, at = [], [], physical_offset
    for number, (one, new) in enumerate(drafts, queue_offset):
        flags = one.sys_flag & ~HOST_FLAGS
        changes = {"topic": topic, "queue_id": 3, "properties": new, "sys_flag": flags}
        again = record.encode(changed(one, **changes), number, at, now_ms)
        assert copy_bytes(topic, messages[number - queue_offset], new) == len(again)
        data.append(again)
        units.append(UNIT.pack(at, len(again), tags_code_of(new)))
        at += len(again)
    assert made.data == b"".join(data)
    assert made.units == b"".join(units)
    expected = [closed(new) for _, new in drafts]
    assert [*made.properties] == (expected if any(expected) else [])
    room = len(made.data) - 1
    fewer = encode_copies(copies, topic, 3, queue_offset, physical_offset, now_ms, room)
    assert fewer.offsets == made.offsets[:-1]
    assert fewer.data == b"".join(data[:-1])


@given(MESSAGES, st.data())
def test_of_changed_bytes_it_makes_a_message_or_says_that_they_are_none(
    message: MessageDraft, data: st.DataObject
) -> None:
    whole = bytearray(record.encode(message, 7, 9, 11))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = memoryview(whole)[: data.draw(st.integers(0, len(whole)))]
    for buffer in (memoryview(whole), cut):
        try:
            found = stored(buffer)
        except RecordDamaged:
            continue
        assert copy_bytes("T", found, found.properties) > len(found.body)
        encode_copies([(found, found.properties)], "T", 0, 0, 0, 0, ROOM)


def test_a_part_of_a_transaction_is_no_message_of_a_queue() -> None:
    draft = MessageDraft("T", 0, b"half", b"", bytes(8), bytes(8), sys_flag=TRANSACTION_PREPARED)
    with pytest.raises(RecordDamaged, match="no place in a queue"):
        stored(record.encode(draft, 0, 0, 0))


def test_messages_end_at_a_damaged_one() -> None:
    draft = MessageDraft("T", 0, b"body", b"", bytes(8), bytes(8))
    whole = record.encode(draft, 0, 0, 0)
    messages, damage = stored_messages([whole, whole + whole[:50], whole])
    assert len(messages) == 2
    assert damage is not None
