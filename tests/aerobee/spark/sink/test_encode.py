"""Every row arrives once, whole, where it belongs: Arrow goes in, batch items come out."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.compression import Compression, unpack
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.producer_batch import WAITS
from aerobee.client.steps.sending import hashed
from aerobee.errors import ConfigurationError
from aerobee.spark.sink.columns import places
from aerobee.spark.sink.encode import BODY_BYTES_MAX, Encoder, RowEncoding, Shipment, pieces
from aerobee.store.format import properties
from aerobee.store.format.batch import batch_items

TEXT_MAP = pa.map_(pa.string(), pa.string())
QUEUES = [MessageQueue("any", broker, number) for broker in ("a", "b") for number in range(4)]


def queues_of(topic: str, broker: str | None = None) -> list[MessageQueue]:
    return [queue._replace(topic=topic) for queue in QUEUES]


def ids() -> Callable[[int], list[str]]:
    counter = count(1)
    return lambda how_many: [f"ID{next(counter):04}" for _ in range(how_many)]


def encoder(batch: Any, packing: RowEncoding, order_by: str | None = None) -> Encoder:
    where = places(batch.schema, topic=packing.topic, order_by=order_by)
    return Encoder(where, packing, new_ids=ids(), queues=queues_of)


def shipments(batch: Any, packing: RowEncoding | None = None, **options: Any) -> list[Shipment]:
    packing = packing or RowEncoding(topic="T")
    return list(encoder(batch, packing, **options).shipments(batch))


def rows_of(shipment: Shipment) -> list[tuple[int, bytes, dict[str, str]]]:
    """Flag, body and properties of each message, as a broker would take them."""
    batch = shipment.batch
    if not batch.as_batch:
        return [(batch.flag, batch.body, properties.decode(batch.properties))]
    assert batch.properties == WAITS
    items = [(f, bytes(b), properties.decode(p)) for f, b, p in batch_items(batch.body)]
    assert len(items) == len(batch.uniq_ids)
    return items


def all_rows(sent: Sequence[Shipment]) -> list[tuple[int, bytes, dict[str, str]]]:
    return [row for shipment in sent for row in rows_of(shipment)]


def table(**columns: Any) -> Any:
    return pa.record_batch(dict(columns))


# What is all white space is no value of a property.
texts = st.text(st.characters(codec="utf-8", min_codepoint=33), min_size=1, max_size=8).filter(
    str.strip
)
names = texts.map(lambda name: f"p-{name}")
row_lists = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=40),
            "topic": st.sampled_from(["T1", "T2", "T3"]),
            "tags": st.none() | texts,
            "keys": st.none() | st.lists(texts, max_size=3),
            "properties": st.none()
            | st.dictionaries(names, texts, max_size=3).map(lambda d: [*d.items()]),
            "shardingKey": st.none() | texts,
            "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
            "delayLevel": st.none() | st.integers(0, 3),
        }
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "topic": pa.string(),
        "tags": pa.string(),
        "keys": pa.list_(pa.string()),
        "properties": TEXT_MAP,
        "shardingKey": pa.string(),
        "flag": pa.int32(),
        "delayLevel": pa.int32(),
    }
)


@given(row_lists, st.integers(1, 8), st.integers(1, 400), st.integers(0, 5))
def test_every_row_goes_once_and_whole_to_its_topic_and_queue(
    rows: list[dict[str, Any]], batch_rows: int, batch_bytes: int, skipped: int
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    if skipped < len(rows):
        # What Spark cuts off the front must not show.
        batch, rows = batch.slice(skipped), rows[skipped:]
    packing = RowEncoding(batch_rows=batch_rows, batch_bytes=batch_bytes)
    sent = shipments(batch, packing)
    found = []
    for shipment in sent:
        got = rows_of(shipment)
        assert len(got) <= batch_rows
        assert len(got) == 1 or len(shipment.batch.body) <= batch_bytes
        assert len(got) == 1 or not any("DELAY" in named for _, _, named in got)
        assert shipment.body_bytes == sum(len(body) for _, body, _ in got)
        assert shipment.batch.uniq_ids == [named.pop("UNIQ_KEY") for _, _, named in got]
        for (flag, body, named), uniq_id in zip(got, shipment.batch.uniq_ids, strict=True):
            assert named.pop("WAIT") == "true"
            place = (shipment.batch.topic, shipment.queue)
            found.append((uniq_id, *place, flag, body, named))
    assert sorted(found, key=lambda row: row[0]) == [
        (f"ID{at:04}", *expected(row)) for at, row in enumerate(rows, 1)
    ]


def expected(row: dict[str, Any]) -> tuple[Any, ...]:
    key = row["shardingKey"]
    named = dict(row["properties"] or ())
    named |= {"TAGS": row["tags"], "KEYS": " ".join(row["keys"] or ()), "__SHARDINGKEY": key}
    named["DELAY"] = str(row["delayLevel"] or "")
    queue = None if key is None else queues_of(row["topic"])[hashed(key, len(QUEUES))]
    named = {name: value for name, value in named.items() if value}
    return row["topic"], queue, row["flag"] or 0, row["body"], named


@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=40), st.integers(1, 5))
def test_rows_of_one_queue_keep_their_order(keys: list[str], batch_rows: int) -> None:
    bodies = [f"{key}{at}".encode() * (1 + 9 * (at % 3 == 0)) for at, key in enumerate(keys)]
    packing = RowEncoding(topic="T", batch_rows=batch_rows, compress="zlib", compress_over=15)
    sent = shipments(table(body=pa.array(bodies), shardingKey=keys), packing)
    for queue in {shipment.queue for shipment in sent}:
        got = [
            unpack(body, shipment.batch.sys_flag)
            for shipment in sent
            if shipment.queue == queue
            for _, body, _ in rows_of(shipment)
        ]
        of_queue = {key for key in keys if queues_of("T")[hashed(key, len(QUEUES))] == queue}
        assert got == [body for key, body in zip(keys, bodies, strict=True) if key in of_queue]


@given(st.lists(st.integers(1, 100), min_size=1), st.integers(1, 150))
def test_pieces_cover_all_rows_within_their_limit(sizes: list[int], limit: int) -> None:
    ranges = list(pieces(np.array(sizes), limit))
    assert [row for start, end in ranges for row in range(start, end)] == list(range(len(sizes)))
    assert all(end - start == 1 or sum(sizes[start:end]) <= limit for start, end in ranges)


def test_plain_rows_travel_in_full_batches_to_any_queue() -> None:
    sent = shipments(table(body=[b"x"] * 600))
    assert [len(shipment.batch.uniq_ids) for shipment in sent] == [256, 256, 88]
    assert all(shipment.queue is None and shipment.batch.as_batch for shipment in sent)


def test_text_is_sent_as_utf_8() -> None:
    assert rows_of(shipments(table(value=["grün"]))[0])[0][1] == "grün".encode()


def test_large_types_and_columns_of_nothing_are_taken() -> None:
    batch = table(
        body=pa.array([b"x"], pa.large_binary()),
        tags=pa.array(["t"], pa.large_string()),
        keys=pa.array([["a", None, "b"]], pa.large_list(pa.large_string())),
        delayMs=pa.nulls(1),
        queueId=pa.nulls(1),
    )
    assert rows_of(shipments(batch)[0])[0][2] == {
        "UNIQ_KEY": "ID0001",
        "TAGS": "t",
        "KEYS": "a b",
        "WAIT": "true",
    }


def test_the_topic_option_goes_before_the_column() -> None:
    sent = shipments(table(body=[b"x"], topic=["column"]), RowEncoding(topic="option"))
    assert sent[0].batch.topic == "option"


def test_the_tags_option_is_for_rows_without_a_tag() -> None:
    batch = table(body=[b"1", b"2", b"3"], tags=["own", None, ""])
    sent = shipments(batch, RowEncoding(topic="T", tags="given"))
    assert [named["TAGS"] for _, _, named in all_rows(sent)] == ["own", "given", "given"]
    (plain,) = shipments(table(body=[b"1"]), RowEncoding(topic="T", tags="given"))
    assert rows_of(plain)[0][2]["TAGS"] == "given"


def test_a_message_id_is_kept_and_made_where_it_is_missing() -> None:
    sent = shipments(table(body=[b"1", b"2"], msgId=["MINE", None]))
    assert sent[0].batch.uniq_ids == ["MINE", "ID0002"]


def test_an_explicit_queue_goes_before_a_sharding_key() -> None:
    batch = table(body=[b"1"], brokerName=["b"], queueId=[3], shardingKey=["k"])
    (sent,) = shipments(batch)
    assert sent.queue == MessageQueue("T", "b", 3)
    assert rows_of(sent)[0][2]["__SHARDINGKEY"] == "k"


def test_a_broker_alone_leaves_the_queue_open() -> None:
    (sent,) = shipments(table(body=[b"1", b"2"], brokerName=["b", "b"]))
    assert (sent.queue, sent.broker) == (None, "b")
    (keyed,) = shipments(table(body=[b"1"], brokerName=["b"], shardingKey=["k"]))
    assert keyed.queue == MessageQueue("T", "b", hashed("k", 4))
    (free,) = shipments(table(body=[b"1"], brokerName=[""]))
    assert (free.queue, free.broker) == (None, None)


@pytest.mark.parametrize(
    ("broker", "queue_id", "words"),
    [
        (None, 1, "queue any broker/1 is on several brokers: say which in brokerName"),
        ("a", 7, "queue a/7 cannot be written; there are a/0, a/1"),
        ("c", None, "queue c/any cannot be written"),
    ],
)
def test_a_queue_that_is_not_there_is_named(
    broker: str | None, queue_id: int | None, words: str
) -> None:
    batch = table(
        body=[b"1", b"2"],
        brokerName=pa.array(["a", broker], pa.string()),
        queueId=pa.array([0, queue_id], pa.int32()),
    )
    with pytest.raises(ConfigurationError) as error:
        shipments(batch)
    assert words in str(error.value)
    assert "row 1 of the task, to topic T" in str(error.value)


def test_order_by_names_the_column_that_chooses_the_queue() -> None:
    batch = table(body=[b"1", b"2"], customer=[17, None])
    keyed, free = sorted(shipments(batch, order_by="customer"), key=lambda s: s.queue is None)
    assert keyed.queue == queues_of("T")[hashed("17", len(QUEUES))]
    assert rows_of(keyed)[0][2]["__SHARDINGKEY"] == "17"
    assert free.queue is None


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_only_large_bodies_are_compressed_and_batches_say_how(method: Compression) -> None:
    bodies = [b"s" * 100, b"L" * 5000, b"s" * 100, b"M" * 5000]
    packing = RowEncoding(topic="T", compress=method, compress_over=100)
    small, large = shipments(table(body=bodies), packing)
    assert small.batch.sys_flag == 0
    assert [b for _, b, _ in rows_of(small)] == [bodies[0], bodies[2]]
    packed = [unpack(b, large.batch.sys_flag) for _, b, _ in rows_of(large)]
    assert large.batch.sys_flag & 1
    assert packed == [bodies[1], bodies[3]]


def test_times_are_the_same_instant_in_every_session_time_zone() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678_901, UTC)
    for zone in ("UTC", "Asia/Shanghai", "America/New_York"):
        batch = table(body=[b"1"], deliverTime=pa.array([at], pa.timestamp("us", zone)))
        named = rows_of(shipments(batch)[0])[0][2]
        assert named["TIMER_DELIVER_MS"] == str(int(at.timestamp() * 1000))


def test_a_delay_travels_alone_and_says_its_kind() -> None:
    batch = table(
        body=[b"1", b"2", b"3", b"4", b"5"],
        delayLevel=pa.array([None, 3, 0, None, None], pa.int32()),
        delayMs=pa.array([None, None, 0, 1500, None], pa.int64()),
    )
    sent = shipments(batch)
    delays = [
        {name: v for name, v in rows_of(s)[0][2].items() if name.startswith(("DELAY", "TIMER"))}
        for s in sent
        if not s.batch.as_batch
    ]
    assert delays == [{"DELAY": "3"}, {"TIMER_DELAY_MS": "1500"}]
    assert [b for s in sent if s.batch.as_batch for _, b, _ in rows_of(s)] == [b"1", b"3", b"5"]


def test_a_row_with_two_delays_is_refused() -> None:
    batch = table(body=[b"1", b"2"], delayLevel=[0, 1], delayMs=[5, 6])
    with pytest.raises(ConfigurationError, match=r"row 1 .*exclude each other"):
        shipments(batch)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"row 0 .*delayMs is -5"):
        shipments(table(body=[b"1"], delayMs=[-5]))


def test_rows_born_at_other_times_travel_apart() -> None:
    born = datetime(2024, 5, 6, tzinfo=timezone(timedelta(hours=8)))
    times = pa.array([born, None, born], pa.timestamp("us", "UTC"))
    sent = shipments(table(body=[b"1", b"2", b"3"], bornTimestamp=times))
    told = {s.born_ms: [body for _, body, _ in rows_of(s)] for s in sent}
    assert told == {0: [b"2"], int(born.timestamp() * 1000): [b"1", b"3"]}


def test_stamps_count_the_rows_of_the_task() -> None:
    first, second = table(body=[b"1", b"2"]), table(body=[b"3"])
    made = encoder(first, RowEncoding(topic="T", stamp="sink:7:0"))
    sent = [shipment for batch in (first, second) for shipment in made.shipments(batch)]
    stamps = [named["AB_SINK"].rpartition(":") for _, _, named in all_rows(sent)]
    assert [place for place, _, _ in stamps] == ["sink:7:0:0", "sink:7:0:1", "sink:7:0:2"]
    assert len({digest for _, _, digest in stamps}) == 3


ROW: dict[str, Any] = {
    "body": [b"1"],
    "topic": ["T"],
    "tags": ["red"],
    "keys": [["k"]],
    "properties": pa.array([[("a", "b")]], TEXT_MAP),
    "shardingKey": ["s"],
    "brokerName": ["a"],
    "queueId": pa.array([0], pa.int32()),
    "delayMs": [5],
    "flag": pa.array([1], pa.int32()),
}


@pytest.mark.parametrize(
    "other",
    [
        *({"body": [b"2"]}, {"topic": ["U"]}, {"tags": ["blue"]}, {"tags": [None]}),
        *({"keys": [["k", "l"]]}, {"properties": pa.array([[("a", "c")]], TEXT_MAP)}),
        *({"shardingKey": ["t"]}, {"queueId": pa.array([1], pa.int32())}, {"delayMs": [6]}),
        {"brokerName": ["b"]},
        {"flag": pa.array([2], pa.int32())},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_stamp_is_that_of_one_row_in_whatever_order_a_task_has_them(other: Any) -> None:
    """Behind a shuffle, a task that is run again can have another row at the same place."""

    def stamp(**columns: Any) -> str:
        made = encoder(batch := table(**columns), RowEncoding(stamp="sink:7:0"))
        [(_, _, named)] = all_rows(list(made.shipments(batch)))
        return named["AB_SINK"]

    assert stamp(**ROW) == stamp(**ROW) != stamp(**ROW | other)


def test_an_empty_batch_is_nothing_to_send() -> None:
    assert shipments(table(body=pa.array([], pa.binary()))) == []


def test_properties_without_a_value_are_left_out() -> None:
    batch = table(
        body=[b"1", b"2", b"3"],
        properties=pa.array([[("a", None), ("b", "2")], None, []], TEXT_MAP),
    )
    named = [set(named) - {"UNIQ_KEY", "WAIT"} for _, _, named in all_rows(shipments(batch))]
    assert named == [{"b"}, set(), set()]


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (("TAGS", "x"), "property name TAGS is reserved"),
        (("UNIQ_KEY", "x"), "property name UNIQ_KEY is reserved"),
        (("a", ""), "'a' has an empty name or value"),
        (("a", "  "), "'a' has an empty name or value"),
        (("", "x"), "'' has an empty name or value"),
        (("a", "x\x01y"), r"separate properties"),
        (("a\x02b", "x"), r"separate properties"),
    ],
)
def test_a_property_that_could_not_be_read_back_is_refused(
    pair: tuple[str, str], words: str
) -> None:
    batch = table(body=[b"1", b"2"], properties=pa.array([[("ok", "1")], [pair]], TEXT_MAP))
    with pytest.raises(ConfigurationError, match=words) as error:
        shipments(batch)
    assert str(error.value).startswith("row 1 of the task, to topic T: ")


@pytest.mark.parametrize("column", ["tags", "keys", "shardingKey", "msgId"])
def test_separators_in_a_column_are_refused(column: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"row 1 .*column {column} is 'x\\x02'"):
        shipments(table(**{"body": [b"1", b"2"], column: ["fine", "x\x02"]}))


@pytest.mark.parametrize(
    ("column", "shape"),
    [
        *((name, pa.string()) for name in ("topic", "tags", "keys", "shardingKey", "msgId")),
        ("brokerName", pa.large_string()),
        ("keys", pa.list_(pa.string())),
        ("properties", TEXT_MAP),
    ],
)
def test_texts_that_are_not_utf_8_are_refused(column: str, shape: Any) -> None:
    """A string of Spark may have any bytes, as of `cast(body AS string)`; clients decode them."""
    raw: Any = pa.array([b"fine", b"\xff\xfe"])
    texts = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    if pa.types.is_list(shape):
        texts = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts)
    elif pa.types.is_map(shape):
        names = pa.array(["a", "b"])
        texts = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), names, texts)
    rows = table(**{"body": [b"1", b"2"], column: texts.cast(shape)})
    with pytest.raises(
        ConfigurationError, match=rf"row 1 .*column {column} has bytes that are not"
    ):
        shipments(rows, RowEncoding(topic=None if column == "topic" else "T"))


def test_a_key_with_a_space_and_a_tag_that_no_subscription_names_are_refused() -> None:
    """They would come out as two keys, and as a tag that nobody gets."""
    rows = table(body=["x", "y", "z"], keys=pa.array([["a"], None, ["b", "c d"]]))
    with pytest.raises(ConfigurationError, match=r"row 2.*key 'c d' has a space"):
        shipments(rows)
    rows = table(body=["x", "y"], tags=["a", "a||b"])
    with pytest.raises(ConfigurationError, match=r"row 1.*tags is 'a\|\|b'"):
        shipments(rows)
    copied = table(body=["x"], tags=["a||b"], keys=["c d"], msgId=["ID"])
    assert "a||b" in str(shipments(copied)), "a copy has what its message had"


def test_keys_of_nothing_leave_no_space_among_the_others() -> None:
    rows = table(body=["x", "y", "z"], keys=pa.array([["a", "", "b"], ["", ""], ["c", None]]))
    named = [named.get("KEYS") for _, _, named in all_rows(shipments(rows))]
    assert named == ["a b", None, "c"]


def test_properties_that_do_not_fit_are_refused() -> None:
    batch = table(body=[b"1"], tags=["t" * 33_000])
    with pytest.raises(
        ConfigurationError,
        match=r"to topic T: the properties of message \w+ take 33.* at most 32767",
    ):
        shipments(batch)


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        *((0, ""), (70, ""), (290, "AB_REPLAY"), (340, "AB_REPLAY_FROM AB_REPLAY")),
        (1_000, "WAIT AB_REPLAY_FROM AB_REPLAY"),
    ],
)
def test_a_copied_message_fits_wherever_it_came_from_a_broker_that_took_it(
    left: int, kept: str
) -> None:
    """What we add gives way to what brokers add; what they had added before is gone."""
    ours = {"AB_REPLAY": "20260301T120000.000000Z", "AB_REPLAY_FROM": "broker-a/orders/3/12/5120"}
    theirs = {"UNIQ_KEY": "0A" * 16, "TAGS": "red"}
    big = "v" * (32_767 - left - len(properties.encode(theirs)) - len("big__"))
    own = pa.array([[("big", big), *ours.items()], [("a", "b"), *ours.items()]], TEXT_MAP)
    batch = table(body=[b"1", b"2"], properties=own, msgId=["0A" * 16] * 2, tags=["red"] * 2)
    first, second = (said for _, _, said in all_rows(shipments(batch)))
    everything = ours | {"WAIT": "true"}
    assert first == {"big": big, **theirs, **{name: everything[name] for name in kept.split()}}
    assert second == {"a": "b", **theirs, **everything}


@pytest.mark.parametrize("body", [b"", None])
def test_an_empty_body_is_refused(body: bytes | None) -> None:
    batch = table(body=pa.array([b"1", body], pa.binary()))
    with pytest.raises(
        ConfigurationError, match="row 1 of the task, to topic T: the body is empty"
    ):
        shipments(batch)


def test_a_body_too_large_is_named_with_topic_and_size() -> None:
    batch = table(body=[b"1", b"x" * (BODY_BYTES_MAX + 1)], topic=["small", "large"])
    with pytest.raises(ConfigurationError, match=r"topic large: the body has 4194305 bytes"):
        shipments(batch, RowEncoding())


def test_a_row_without_a_topic_is_named() -> None:
    with pytest.raises(ConfigurationError, match="row 1 of the task has no topic"):
        shipments(table(body=[b"1", b"2"], topic=["T", None]), RowEncoding())


@pytest.mark.parametrize("topic", ["no such/name", "SCHEDULE_TOPIC_XXXX", ""])
def test_a_topic_that_no_client_may_send_to_is_refused(topic: str) -> None:
    with pytest.raises(ConfigurationError, match="topic"):
        shipments(table(body=[b"1"], topic=[topic]), RowEncoding())


def test_a_flag_beyond_32_bits_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="column flag"):
        shipments(table(body=[b"1"], flag=[2**40]))
