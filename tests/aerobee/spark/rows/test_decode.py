"""Records decoded by columns against the same records read one by one."""

from __future__ import annotations

import ipaddress
import json
import mmap
import zlib
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import CompressionError, ConfigurationError, RecordDamagedError
from aerobee.spark.rows import decode as arrowdecode
from aerobee.spark.rows import records as arrowrows
from aerobee.spark.rows.columns import COLUMNS, DEFAULT, PRESETS, arrow_schema
from aerobee.spark.rows.decode import Decoder, starts_of
from aerobee.spark.rows.records import Bodies
from aerobee.store.format import message_id, properties, record
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.format.layout import Buffer

ALL = tuple(COLUMNS)
# It has no types; see also aerobee.compression.
LZ4_FRAME: Any = import_module("lz4.frame")
V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = ipaddress.ip_address("fe80::1").packed + b"\x00\x00\x2a\x9f"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The two records of the format's description, byte by byte.
FIRST = bytes.fromhex(
    "00000065daa320a758932aac000000010000000000000000000000050000000000000000000000000000018bcfe5687b"
    "7f00000100002a9f0000018bcfe5687c7f00000100002a9f00000000000000000000000000000002686901540007"
    "54414753016102"
)


def record_bytes(
    place: int = 0,
    *,
    body: bytes = b"hi",
    topic: str = "T",
    named: bytes = b"TAGS\x01a\x02",
    born: bytes = V4,
    stored: bytes = V4,
    sys_flag: int = 0,
    offset: int = 5,
    flag: int = 0,
    ms: int = 1_700_000_000_123,
) -> bytes:
    draft = record.MessageDraft(
        topic, 1, body, named, born, stored, flag, sys_flag, ms, 2, 77, tags_code=0
    )
    return record.encode(draft, offset, place, ms + 1)


def log_of(*parts: dict[str, Any]) -> bytes:
    """Records one after the other, each naming its own place."""
    log = b""
    for offset, part in enumerate(parts):
        log += record_bytes(len(log), **{"offset": offset, **part})
    return log


def rows(buffer: Buffer, columns: tuple[str, ...] = ALL, **options: Any) -> list[dict[str, Any]]:
    decoder = Decoder(columns, **options)
    found: list[dict[str, Any]] = []
    for batch in decoder.batches(buffer):
        assert batch.schema.equals(arrow_schema(columns, options.get("preset", "aerobee")))
        batch.validate(full=True)
        found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def host(packed: bytes) -> str:
    address, port = ipaddress.ip_address(packed[:-4]), int.from_bytes(packed[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def reference(one: record.Record, body: bytes) -> dict[str, Any]:
    """What a row must be, field by field."""
    named = properties.decode(one.properties)
    ms = {"bornTimestamp": one.born_timestamp, "storeTimestamp": one.store_timestamp}
    return {
        "topic": one.topic,
        "brokerName": "broker-a",
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "keys": named.get("KEYS"),
        "tags": named.get("TAGS"),
        "body": body,
        "properties": {name: value for name, value in named.items() if name != "__CRC32#"},
        "msgId": named.get("UNIQ_KEY"),
        "offsetMsgId": message_id.offset_id(one.store_host, one.physical_offset),
        "commitLogOffset": one.physical_offset,
        "flag": one.flag,
        "sysFlag": one.sys_flag,
        "reconsumeTimes": one.reconsume_times,
        "bodyCRC": one.body_crc,
        "preparedTransactionOffset": one.prepared_transaction_offset,
        "bornHost": host(one.born_host),
        "storeHost": host(one.store_host),
        "storeSize": one.size,
    } | {name: EPOCH.timestamp() * 1000 + value for name, value in ms.items()}


def in_ms(row: dict[str, Any]) -> dict[str, Any]:
    """Instants as ms, so that no calendar is in the way of comparing them."""
    instants = ("bornTimestamp", "storeTimestamp")
    return row | {name: round(row[name].timestamp() * 1000) for name in instants}


PACKERS = {
    0: lambda body: body,
    0x1: zlib.compress,
    0x101: LZ4_FRAME.compress,
    0x201: zstandard.ZstdCompressor().compress,
    0x301: zlib.compress,
}
names = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"__CRC32#", b"WAIT", b"UNIQ_KEYS", b"TAGSX", b"a", b""]
) | st.binary(max_size=20)
values = st.text(max_size=12).map(str.encode) | st.binary(max_size=6)
pieces = st.one_of(
    st.builds(lambda name, value: name + b"\x01" + value + b"\x02", names, values),
    st.builds(lambda name, value: name + b"\x01" + value + b"\x02", names, values),
    st.builds(lambda name, value: name + b"\x01" + value + b"\x02", names, values),
    st.binary(max_size=5),
    st.sampled_from([b"\x01", b"\x02", b"\x01\x02", b"k\x01v", b"TAGS\x01x\x01y\x02", b"\0"]),
)
clean = st.lists(
    st.builds(
        lambda name, value: name + b"\x01" + value + b"\x02",
        st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"__CRC32#", b"a-longer-name", b"b"]),
        st.sampled_from([b"x", "ä".encode(), b"a value", b""]),
    ),
    max_size=7,
).map(b"".join)


@st.composite
def drafts(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """What to write, and the body as it was before packing."""
    kind = draw(st.sampled_from(list(PACKERS)))
    body = draw(st.binary(max_size=60))
    topic = draw(st.sampled_from(["T", "TopicTest", "x" * 127, "y" * 128, "%RETRY%grüppe"]))
    part = {
        "body": PACKERS[kind](body),
        "sys_flag": kind | draw(st.sampled_from([0, 0x4, 0x8, 0x80])),
        "topic": topic,
        "named": draw(clean | st.lists(pieces, max_size=6).map(b"".join)),
        "born": draw(st.sampled_from([V4, V4, V6])),
        "stored": draw(st.sampled_from([V4, V4, V6])),
        "offset": draw(st.integers(0, 2**63 - 1)),
        "flag": draw(st.integers(-(2**31), 2**31 - 1)),
        "ms": draw(st.integers(0, 4_000_000_000_000)),
    }
    return part, body


@settings(deadline=None, max_examples=60)
@given(st.lists(drafts(), min_size=1, max_size=12), st.integers(1, 12))
def test_columns_say_what_each_record_says(
    written: list[tuple[dict[str, Any], bytes]], batch_rows: int
) -> None:
    log = log_of(*(part for part, _ in written))
    wanted = [
        reference(one, body) for one, (_, body) in zip(record.records([log]), written, strict=True)
    ]
    found = rows(log, batch_rows=batch_rows, broker_name="broker-a")
    assert [in_ms(row) for row in found] == wanted
    assert starts_of(log) == [one["commitLogOffset"] for one in wanted]


@settings(deadline=None, max_examples=40)
@given(st.lists(clean | st.binary(max_size=40), min_size=1, max_size=30))
def test_each_column_is_the_same_alone(named: list[bytes]) -> None:
    log = log_of(*({"named": one} for one in named))
    together = rows(log)
    for name in ("properties", "keys", "tags", "msgId"):
        assert rows(log, (name,)) == [{name: row[name]} for row in together]


def test_the_example_of_the_format_description() -> None:
    second = record_bytes(101, body=b"yo!", named=b"KEYS\x01k1\x02TAGS\x01b\x02", offset=6)
    assert len(FIRST) == 101
    assert len(second) == 110
    one, two = rows(FIRST + second, ("queueId", "queueOffset", "body", "topic", "keys", "tags"))
    assert one == {
        "queueId": 1, "queueOffset": 5, "body": b"hi", "topic": "T", "keys": None, "tags": "a",
    }  # fmt: skip
    assert two == {
        "queueId": 1, "queueOffset": 6, "body": b"yo!", "topic": "T", "keys": "k1", "tags": "b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        (b"", {}),
        (b"TAGS\x01a", {"TAGS": "a"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"TAGS\x01a\x02TAGS\x01\x02", {"TAGS": "a"}),
        (b"\x01v\x02k\x01\x02x\x02", {}),
        (b"k\x01a\x01b\x02", {"k": "a\x01b"}),
        (b"k\x01\xff\x02", {"k": "\ufffd"}),
        (b"a\xff\x011\x02a\xfe\x012\x02", {"a\ufffd": "2"}),
        (b"__CRC32#\x01123\x02k\x01v\x02", {"k": "v"}),
        (b"__CRC32#\x01123", {}),
        (b"k\x01a\x00b\x02", {"k": "a\0b"}),
        (b"".join(b"n%d\x01v\x02" % n for n in range(40)), {f"n{n}": "v" for n in range(40)}),
        (b"".join(b"long-name-%d\x01v\x02" % n for n in range(9)) * 2, None),
    ],
)
def test_property_strings_of_every_kind(named: bytes, wanted: dict[str, str] | None) -> None:
    plain = {"named": b"KEYS\x01k\x02TAGS\x01t\x02"}
    found = rows(log_of(plain, {"named": named}, plain), ("properties", "tags"))
    assert [row["properties"] for row in found[::2]] == [{"KEYS": "k", "TAGS": "t"}] * 2
    wanted = properties.decode(named) if wanted is None else wanted
    assert found[1] == {"properties": wanted, "tags": wanted.get("TAGS")}


def test_text_that_is_no_utf8_gets_replacement_characters() -> None:
    broken = record_bytes(topic="Tx").replace(b"Tx", b"T\xff")
    assert rows(broken, ("topic",)) == [{"topic": "T\ufffd"}]
    assert rows(broken + record_bytes(len(broken)), ("topic",))[1] == {"topic": "T"}


def test_instants_beyond_the_calendar_are_its_edges() -> None:
    [row] = Decoder(("bornTimestamp",)).batches(record_bytes(ms=2**62))
    assert row.column(0).cast(pa.int64()).to_pylist() == [253_402_300_799_000_000]


def test_only_messages_with_exactly_the_wanted_tag() -> None:
    # Both have the hash 2112: a broker cannot tell them apart.
    log = log_of({"named": b"TAGS\x01Aa\x02"}, {"named": b"TAGS\x01BB\x02"}, {"named": b""})
    assert rows(log, ("tags",), tags=frozenset({"Aa"})) == [{"tags": "Aa"}]
    assert rows(log, ("queueOffset",), tags=frozenset({"BB", "C"})) == [{"queueOffset": 1}]
    assert rows(log, ("queueOffset",), tags=frozenset({"Aa", "BB"}), batch_rows=1) == [
        {"queueOffset": 0},
        {"queueOffset": 1},
    ]
    assert rows(log, ("tags",), tags=frozenset({"C"})) == []


def test_bodies_stay_packed_when_told() -> None:
    packed = zlib.compress(b"x" * 100)
    log = log_of({"body": packed, "sys_flag": 1})
    assert rows(log, ("body",), bodies=Bodies.STORED) == [{"body": packed}]
    assert rows(log, ("body",)) == [{"body": b"x" * 100}]


@pytest.mark.parametrize(
    ("body", "sys_flag", "why"),
    [
        (b"no zlib", 0x1, "does not unpack as zlib"),
        (b"no lz4", 0x101, "does not unpack as lz4"),
        (LZ4_FRAME.compress(b"x" * 999)[:-8], 0x101, "does not unpack as lz4"),
        (zstandard.ZstdCompressor().compress(b"x" * 999)[:-3], 0x201, "does not unpack as zstd"),
        (b"x", 0x701, "compression type 7 is not known"),
    ],
)
def test_a_body_that_does_not_unpack_is_named(body: bytes, sys_flag: int, why: str) -> None:
    log = log_of({}, {"body": body, "sys_flag": sys_flag})
    with pytest.raises(CompressionError, match=f"topic T in queue 1 at offset 1: .*{why}"):
        rows(log, ("body",))
    assert len(rows(log, ("topic",))) == 2


def test_a_body_that_does_not_unpack_stays_as_it_is_stored_when_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    packed = [b"no zlib", zlib.compress(b"x" * 100), zlib.compress(b"y" * 100)[:-4]]
    log = log_of({}, *({"body": body, "sys_flag": 1} for body in packed))
    found = [row["body"] for row in rows(log, ("body",), bodies=Bodies.READABLE)]
    assert found[1:] == [packed[0], b"x" * 100, packed[2]]
    assert [line.getMessage().split(":")[0] for line in caplog.records] == [
        f"the message of topic T in queue 1 at offset {offset}" for offset in (1, 3)
    ]


def test_a_packed_body_that_is_damaged_is_none(caplog: pytest.LogCaptureFixture) -> None:
    packed = LZ4_FRAME.compress(b"x" * 99, store_size=False)
    log = log_of({"body": packed, "sys_flag": 0x101}, {}).replace(b"x", b"y", 1)
    with pytest.raises(CompressionError, match="queue 1 at offset 0: the body is damaged"):
        rows(log, ("body",))
    assert rows(log, ("body",), bodies=Bodies.READABLE) == [{"body": None}, {"body": b"hi"}]
    assert "damaged: it has another CRC than when it was stored; it is read as null" in caplog.text


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrowrows, "UNPACKED_MAX", 1000)
    log = log_of({"body": zstandard.ZstdCompressor().compress(b"x" * 1001), "sys_flag": 0x201})
    with pytest.raises(CompressionError, match="more than 1000 bytes"):
        rows(log, ("body",))


def test_unpacked_bodies_share_batches_only_while_they_fit() -> None:
    packed = [{"body": zlib.compress(b"%d" % n + b"x" * 99_999), "sys_flag": 1} for n in range(9)]
    log = log_of(*packed, {"body": zlib.compress(b"9" * 900_000), "sys_flag": 1}, packed[0])
    assert len(log) < 10_000
    batches = list(Decoder(("body",), batch_bytes=250_000).batches(log))
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 2, 1, 1, 1]
    bodies = [row["body"] for batch in batches for row in batch.to_pylist()]
    assert [(body[:1], len(body)) for body in bodies] == [
        *((b"%d" % n, 100_000) for n in range(9)),
        (b"9", 900_000),
        (b"0", 100_000),
    ]


def test_batches_are_bounded_by_rows_and_by_bytes() -> None:
    log = log_of(*[{"body": b"x" * 1000}] * 20)
    size = len(log) // 20

    def sizes(**options: Any) -> list[int]:
        return [batch.num_rows for batch in Decoder(DEFAULT, **options).batches(log)]

    assert sizes() == [20]
    assert sizes(batch_rows=8) == [8, 8, 4]
    assert sizes(batch_bytes=3 * size) == [3] * 6 + [2]
    assert sizes(batch_bytes=10) == [1] * 20
    assert sizes(batch_bytes=7 * size, batch_rows=10) == [7, 3, 7, 3]


def test_chosen_records_of_a_buffer() -> None:
    log = log_of(*[{"body": b"%d" % n} for n in range(30)])
    starts = starts_of(log)
    decoder = Decoder(("queueOffset",), batch_rows=4)
    found = pa.Table.from_batches(decoder.batches(log, starts[::3]))
    assert found.column(0).to_pylist() == list(range(0, 30, 3))
    far = Decoder(("queueOffset",), batch_bytes=2 * len(FIRST))
    found = pa.Table.from_batches(far.batches(log, starts[::7]))
    assert found.column(0).to_pylist() == list(range(0, 30, 7))
    assert list(decoder.batches(log, [])) == []


def test_batches_outlive_the_file_that_they_were_read_from(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(log_of({"body": b"here"}, {}))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(mapped)
    [batch] = Decoder(ALL).batches(view)
    view.release()
    mapped.close()
    assert batch.column("body").to_pylist() == [b"here", b"hi"]


def test_a_blank_ends_the_records() -> None:
    log = log_of({}, {})
    for remaining in (8, 50, 90, 91, 300):
        blank = record.blank(remaining).ljust(remaining, b"\0")
        assert len(rows(log + blank, ("topic",))) == 2
        assert len(rows(log + blank[:8], ("topic",))) == 2
        assert len(rows(log + blank, ("topic",), batch_rows=2)) == 2
        assert starts_of(log + blank) == starts_of(log)
        assert rows(blank, ("topic",)) == []


def test_a_walk_goes_on_where_it_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*[{"body": b"x" * n} for n in range(20)])
    wanted = starts_of(log)
    for walk_bytes in (1, 101, 250):
        monkeypatch.setattr(arrowdecode, "WALK_BYTES", walk_bytes)
        assert starts_of(log) == starts_of(log + record.blank(8)) == wanted
        assert len(rows(log, ("topic",))) == 20
        with pytest.raises(RecordDamagedError, match=f"byte {wanted[-1]} "):
            starts_of(log[:-1])


def test_an_empty_buffer_has_no_rows() -> None:
    assert rows(b"", ("topic",)) == []
    assert starts_of(b"") == []


def test_part_of_a_buffer() -> None:
    log = log_of({}, {}, {})
    starts = starts_of(log)
    assert starts_of(log, starts[1]) == starts[1:]
    assert starts_of(log, 0, starts[2]) == starts[:2]
    with pytest.raises(RecordDamagedError, match=f"byte {starts[1]} "):
        starts_of(log, 0, starts[2] - 1)


def test_a_torn_tail_is_an_error_that_names_its_place() -> None:
    log = log_of({}, {}, {})
    starts = starts_of(log)
    for cut in range(starts[2] + 1, len(log)):
        with pytest.raises(RecordDamagedError, match=f"no whole record at byte {starts[2]} of "):
            rows(log[:cut])


def changed(log: bytes, at: int, new: bytes) -> bytes:
    return log[:at] + new + log[at + len(new) :]


@pytest.mark.parametrize(
    ("at", "new", "why"),
    [
        (4, b"\xda\xa3\x20\xa8", "magic 0xdaa320a8"),
        (0, b"\x00\x00\x00\x00", "size 0, "),
        (0, b"\x00\x00\x00\x5a", "size 90, "),
        (0, b"\x80\x00\x00\x00", "size -2147483648, "),
        (0, b"\x7f\xff\xff\xff", "size 2147483647, "),
        (84, b"\xff\xff\xff\xff", "body length or topic"),
        (84, b"\x00\x00\x00\x0f", "body length or topic"),
        (84, b"\x00\x00\x00\x01", "lengths do not add up"),
        (90, b"\x00", "lengths do not add up"),
        (90, b"\x80", "body length or topic"),
        (90, b"\x02", "lengths do not add up"),
        (92, b"\x00\x06", "lengths do not add up"),
        (92, b"\xff\xff", "lengths do not add up"),
        (36, b"\x00\x00\x00\x10", "body length or topic"),
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_a_damaged_record_is_an_error_that_says_what_is_wrong(
    at: int, new: bytes, why: str, batch_rows: int
) -> None:
    log = log_of({}, {}, {})
    start = starts_of(log)[1]
    with pytest.raises(RecordDamagedError, match=rf"no whole record at byte {start} of .*: {why}"):
        rows(changed(log, start + at, new), batch_rows=batch_rows)


def test_a_record_that_reaches_into_the_next_chosen_one() -> None:
    log = log_of({"body": record_bytes()}, {})
    with pytest.raises(RecordDamagedError, match="the record at byte 0 reaches into the next"):
        list(Decoder(("topic",)).batches(log, [0, 88]))
    for starts in ([-1], [5_000], [len(log) - 90], [0, 5_000], [0, 5_000, 10], [88, 0], [0, 0]):
        with pytest.raises(RecordDamagedError, match=r"no whole record|do not ascend"):
            list(Decoder(("topic",)).batches(log, starts))


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_no_bytes_whatever_give_anything_but_rows_or_our_errors(data: st.DataObject) -> None:
    log = bytearray(log_of({"born": V6}, {"body": b""}, {"topic": "y" * 130}, {}))
    for _ in range(data.draw(st.integers(1, 4))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = rows(bytes(log), batch_rows=data.draw(st.sampled_from([1, 3, 50])))
    except (RecordDamagedError, CompressionError):
        return
    assert len(found) <= 4


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=400))
def test_bytes_that_are_no_records_at_all(noise: bytes) -> None:
    if noise:
        with pytest.raises(RecordDamagedError, match="byte 0 of"):
            rows(noise)


def test_presets_have_the_names_and_types_of_other_sources() -> None:
    log = log_of({"named": b"KEYS\x01k\x02TAGS\x01t\x02", "ms": 1_000}, {"named": b""})
    kafka = tuple(PRESETS["kafka"])
    one, two = rows(log, kafka, preset="kafka")
    assert one == {
        "key": b"k",
        "value": b"hi",
        "topic": "T",
        "partition": 1,
        "offset": 0,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC),
        "timestampType": 1,
        "headers": [{"key": "KEYS", "value": b"k"}, {"key": "TAGS", "value": b"t"}],
    }
    assert (two["key"], two["headers"]) == (None, [])
    [old, _] = rows(log, tuple(PRESETS["rocketmq-spark"]), preset="rocketmq-spark")
    assert json.loads(old["properties"]) == {"KEYS": "k", "TAGS": "t"}
    assert tuple(old) == tuple(PRESETS["rocketmq-spark"])


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(min_codepoint=3, codec="utf-8"), min_size=1, max_size=4),
            st.text(st.characters(min_codepoint=3, codec="utf-8"), min_size=1, max_size=6),
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_properties_as_json_are_what_json_writes(told: list[dict[str, str]]) -> None:
    """Whole columns at once where nothing is escaped, row by row elsewhere."""
    kind = pa.map_(pa.string(), pa.string())
    column = pa.array([list(row.items()) for row in told], kind)
    texts = arrowdecode.CONVERTERS["rocketmq-spark", "properties"](column).to_pylist()
    assert texts == [json.dumps(row, ensure_ascii=False) for row in told]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ("tpoic",)}, "did you mean 'topic'"),
        ({"columns": ()}, "none is named"),
        ({"columns": ("topic",), "batch_rows": 0}, "batchRows"),
        ({"columns": ("topic",), "batch_bytes": 2 << 30}, "batchBytes"),
        ({"columns": ("topic",), "preset": "x"}, "schemaPreset"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Decoder(**options)


def test_limits_of_a_record() -> None:
    named = b"k\x01" + b"v" * (PROPERTIES_BYTES_MAX - 3) + b"\x02"
    [row] = rows(log_of({"named": named, "body": b"", "topic": "t" * 255}))
    assert len(row["properties"]["k"]) == PROPERTIES_BYTES_MAX - 3
    assert row["bodyCRC"] == crc32(b"") == 0
    assert len(row["topic"]) == 255
    assert arrowdecode.BATCH_ROWS == 10_000
