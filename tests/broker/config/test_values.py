"""What a written value means, and what is said about one that means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.config.files.entries import Entry, Form, Scalar, Tree
from aerobee.broker.config.schema import SCHEMA, Value, canon
from aerobee.broker.config.values import FreeSpace, read, rocketmq_takes, text_of


def yaml(name: str, value: Tree) -> Value | FreeSpace:
    return read(SCHEMA[canon(name)], Entry(name, value, "b.yaml:1", Form.YAML))


def number(name: str, text: str) -> Value | FreeSpace:
    return yaml(name, Scalar(text, "str"))


def java(name: str, text: str) -> Value | FreeSpace:
    entry = Entry(name, Scalar(text, "str"), "b.conf:1", Form.PROPERTIES)
    return read(SCHEMA[canon(name)], entry)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("fileReservedTime", "48h", 48),
        ("fileReservedTime", "2d", 48),
        ("fileReservedTime", "48", 48),
        ("syncFlushTimeout", "5s", 5_000),
        ("syncFlushTimeout", "1m", 60_000),
        ("syncFlushTimeout", "250 ms", 250),
        ("serverChannelMaxIdleTimeSeconds", "2m", 120),
        ("serverChannelMaxIdleTimeSeconds", "3000ms", 3),
        ("mappedFileSizeCommitLog", "1GiB", 1 << 30),
        ("mappedFileSizeCommitLog", "16M", 16 << 20),
        ("mappedFileSizeCommitLog", "64K", 65_536),
        ("mappedFileSizeCommitLog", "1_073_741_824", 1 << 30),
        ("diskMaxUsedSpaceRatio", "80%", 80),
        ("diskSpaceWarningLevelRatio", "20GiB", FreeSpace(20 << 30)),
        ("deleteFileBatchMax", "20", 20),
    ],
)
def test_a_number_may_say_its_unit(name: str, text: str, value: Value | FreeSpace) -> None:
    assert number(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("syncFlushTimeout", "5B", "wrong unit .*ms, s, m, h, d"),
        ("syncFlushTimeout", "5S", "wrong unit"),
        ("mappedFileSizeCommitLog", "5s", r"wrong unit .*B, KiB, K, MiB, M, GiB, G"),
        ("mappedFileSizeCommitLog", "5MB", "wrong unit"),
        ("accessMessageInMemoryMaxRatio", "1GiB", "wrong unit"),
        ("deleteFileBatchMax", "5s", "bare number"),
        ("fileReservedTime", "90m", "no whole number of h"),
        ("syncFlushTimeout", "1.5s", "not a whole number"),
        ("syncFlushTimeout", "0x10", "wrong unit|not a whole number"),
        ("syncFlushTimeout", "", "nothing is not a whole number"),
        ("syncFlushTimeout", "01000", "begins with 0"),
        ("syncFlushTimeout", "9" * 40, "not a whole number"),
        ("syncFlushTimeout", "99", "out of range .100–60000 ms"),
        ("syncFlushTimeout", "2h", "out of range"),
        ("brokerPermission", "5", "none of 0, 2, 4, 6"),
        ("diskSpaceWarningLevelRatio", "20K", "too little space"),
        ("diskSpaceWarningLevelRatio", "99", "out of range"),
    ],
)
def test_a_wrong_number_is_told_what_would_be_right(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        number(name, text)


def test_a_number_in_the_yaml_file_is_the_decimal_that_stands_there() -> None:
    assert yaml("syncFlushTimeout", Scalar("1_000", "int")) == 1_000
    with pytest.raises(ValueError, match="begins with 0"):
        yaml("syncFlushTimeout", Scalar("0200", "int"))


@pytest.mark.parametrize("kind", ["float", "bool", "timestamp", "null"])
def test_a_number_is_no_other_kind_of_value(kind: str) -> None:
    with pytest.raises(ValueError, match=r"not what is expected|no empty item"):
        yaml("syncFlushTimeout", Scalar("1", kind))


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar("yes", "bool"), True),
        (Scalar("Off", "bool"), False),
        (Scalar("TRUE", "str"), True),
        (Scalar("false", "str"), False),
    ],
)
def test_a_boolean_is_yamls_or_true_or_false(scalar: Scalar, value: bool) -> None:
    assert yaml("traceOn", scalar) is value


@pytest.mark.parametrize("scalar", [Scalar("1", "int"), Scalar("yes", "str"), Scalar("", "str")])
def test_a_boolean_is_nothing_else(scalar: Scalar) -> None:
    with pytest.raises(ValueError, match=r"true"):
        yaml("traceOn", scalar)


def test_an_enum_is_written_in_any_case_in_yaml_and_exactly_in_a_rocketmq_file() -> None:
    assert yaml("flushDiskType", Scalar("sync_flush", "str")) == "SYNC_FLUSH"
    assert java("flushDiskType", " SYNC_FLUSH ") == "SYNC_FLUSH"
    with pytest.raises(ValueError, match="none of ASYNC_FLUSH, SYNC_FLUSH"):
        java("flushDiskType", "sync_flush")


@pytest.mark.parametrize(("text", "kind"), [("0123", "int"), ("1.5", "float"), ("no", "bool")])
def test_a_name_that_yaml_takes_for_something_else_must_be_quoted(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f'quote it: "{text}"'):
        yaml("brokerName", Scalar(text, kind))
    assert yaml("brokerName", Scalar(text.replace(".", ""), "str")) == text.replace(".", "")


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a\nb", ".hidden", "x" * 128, "a b"])
def test_a_name_that_becomes_a_directory_has_no_dangerous_characters(name: str) -> None:
    with pytest.raises(ValueError, match="characters that this name may not have"):
        yaml("brokerName", Scalar(name, "str"))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (Scalar("04", "int"), "04"),
        (Scalar("4", "int"), "04"),
        (Scalar("08", "str"), "08"),
        (Scalar("04; 16", "str"), "04;16"),
        ([Scalar("4", "int"), Scalar("08", "str")], "04;08"),
    ],
)
def test_hours_survive_yaml(written: Tree, value: str) -> None:
    assert yaml("deleteWhen", written) == value


@pytest.mark.parametrize("text", ["24", "010", "4:30", "-1", "four"])
def test_what_is_no_hour_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an hour"):
        yaml("deleteWhen", Scalar(text, "str"))


def test_a_list_stands_for_the_text_that_rocketmq_writes() -> None:
    delays: Tree = [Scalar("1s", "str"), Scalar("10m", "str"), Scalar("1d", "str")]
    assert yaml("messageDelayLevel", delays) == "1s 10m 1d"
    servers: Tree = [Scalar("a:9876", "str"), Scalar("b:9876", "str")]
    assert yaml("namesrvAddr", servers) == "a:9876;b:9876"
    with pytest.raises(ValueError, match="one value is expected"):
        yaml("syncFlushTimeout", delays)
    with pytest.raises(ValueError, match="plain values"):
        yaml("namesrvAddr", [[Scalar("a:1", "str")]])
    with pytest.raises(ValueError, match="no empty item"):
        yaml("namesrvAddr", [Scalar("", "null")])


@pytest.mark.parametrize("text", ["10", "5x", "1s,5s", "s"])
def test_what_is_no_delay_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a delay"):
        yaml("messageDelayLevel", Scalar(text, "str"))


@pytest.mark.parametrize("text", ["localhost", "a:0", "a:65536", "a b:1", "http://a:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        yaml("namesrvAddr", Scalar(text, "str"))


def test_a_rocketmq_file_knows_no_units() -> None:
    assert java("fileReservedTime", "48") == 48
    assert java("fileReservedTime", "+48 ") == 48
    with pytest.raises(ValueError, match="units are for YAML"):
        java("fileReservedTime", "48h")


@pytest.mark.parametrize("text", ["yes", "1", "on", ""])
def test_a_rocketmq_file_has_no_other_words_for_true(text: str) -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        java("traceOn", text)
    assert java("traceOn", "TRUE") is True


@pytest.mark.parametrize(
    ("name", "text", "taken"),
    [
        ("fileReservedTime", "48h", "its default 72"),
        ("traceOn", "yes", "false"),
        ("flushDiskType", "sync", "its default ASYNC_FLUSH"),
        ("diskMaxUsedSpaceRatio", "99", "95"),
        ("diskMaxUsedSpaceRatio", "1", "10"),
        ("syncFlushTimeout", "5", "5"),
        ("deleteWhen", " 4:30 ", "4:30"),
    ],
)
def test_what_rocketmq_makes_of_a_wrong_value_is_known(name: str, text: str, taken: str) -> None:
    assert rocketmq_takes(SCHEMA[canon(name)], text) == taken


def test_values_are_written_as_rocketmq_writes_them() -> None:
    assert [text_of(value) for value in (True, False, 5, "x")] == ["true", "false", "5", "x"]


@given(
    st.sampled_from(sorted(SCHEMA)),
    st.text(max_size=20),
    st.sampled_from(["str", "int", "bool", "float", "null"]),
    st.sampled_from(Form),
)
def test_any_text_gives_a_value_in_range_or_a_sentence(
    name: str, text: str, kind: str, form: Form
) -> None:
    key = SCHEMA[name]
    if kind == "bool":
        text = "yes"
    try:
        value = read(key, Entry(key.name, Scalar(text, kind), "x", form))
    except ValueError as error:
        assert str(error)  # noqa: PT017  (most inputs raise)
    else:
        assert isinstance(value, FreeSpace | key.type)
