import dataclasses
from copy import deepcopy
from pathlib import Path

import msgspec
import pytest

from aerobee.client.security import Credentials, TLSConfig
from aerobee.errors import ConfigurationError
from aerobee.field_docs import meanings
from aerobee.spark.cluster_options import cluster_options
from aerobee.spark.offsets import (
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    Queue,
    TimePosition,
)
from aerobee.spark.option_values import Options, declared, value
from aerobee.spark.options import (
    ReadOptions,
    lag_options,
    read_options,
    store_options,
    write_options,
)
from tests.pages import spark_options

READ = {"nameserver": "h1;h2:1", "subscribe": "orders,payments"}


def read(stream: bool = False, /, **given: str) -> ReadOptions:
    return read_options(READ | {name.lower(): text for name, text in given.items()}, stream)


def refused(stream: bool = False, /, **given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(stream, **given)
    return str(caught.value)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    assert (read().starting, read().ending) == (EarliestPosition(), LatestPosition())
    assert read(True).starting == LatestPosition()


def test_defaults_are_those_of_the_table() -> None:
    found = read()
    assert found.name_servers == ("h1:9876", "h2:1")
    assert found.subscribe == ("orders", "payments")
    assert (found.sub_expression, found.expression_type) == ("*", "TAG")
    assert found.max_trigger_delay_s == 900.0
    assert found.max_records_per_partition == 1_000_000
    assert (found.batch_rows, found.batch_bytes) == (10_000, 16 << 20)
    assert (found.pull_batch_size, found.pull_timeout_ms, found.pull_window) == (1024, 3000, 8)
    assert found.fail_on_data_loss
    assert found.decompress
    assert found.read_from == "master"
    assert found.max_offsets_per_trigger is found.min_partitions is None
    assert found.columns is None


def test_values_are_plain_and_travel() -> None:
    found = read(startingOffsets='{"orders":{"b":{"0":3}},"payments":{"b":{"0":4}}}')
    # Copied by what pickles it, too.
    assert deepcopy(found) == found


def test_aliases_and_any_case() -> None:
    given = {"Bootstrap": "h", "TOPIC": "orders", "tags": "A||B"}
    found = read_options(given, stream=False)
    assert (found.name_servers, found.subscribe, found.sub_expression) == (
        ("h:9876",),
        ("orders",),
        "A||B",
    )


def test_an_option_and_its_alias_may_not_differ() -> None:
    assert "subscribe: given twice, also as topic" in refused(topic="x")
    assert read(topic="orders,payments").subscribe == ("orders", "payments")


def test_an_unknown_option_is_refused_with_the_closest_one() -> None:
    assert refused(maxOffsetPerTrigger="1").endswith("did you mean maxOffsetsPerTrigger?")
    assert refused(xyzzy="1") == "option xyzzy: there is no such option here"
    with pytest.raises(ConfigurationError, match=r"no such option here.*producerGroup"):
        write_options({"nameserver": "h", "producergroupp": "x"})


def test_what_spark_adds_is_let_through() -> None:
    read(path="spark-warehouse/t")
    write_options({"nameserver": "h", "checkpointlocation": "/c", "queryname": "q"})


def test_filters_are_not_pushed_down_and_the_option_says_why() -> None:
    assert "wrong rows" in refused(pushFilters="true")


ACCOUNT = {"accesskey": "spark", "secretkey": "hush"}


def test_an_account_and_tls_are_taken_and_the_secret_is_not_shown() -> None:
    raw = {"nameserver": "h", **ACCOUNT, "tlscafile": "/etc/ca.pem"}
    for options in (
        read_options({**raw, "subscribe": "t"}, stream=True),
        write_options(raw),
        lag_options(raw),
    ):
        told = options.access.client_options()
        assert told["credentials"] == Credentials("spark", "hush")
        assert told["tls"] == TLSConfig(ca_file="/etc/ca.pem")
        assert "hush" not in repr(options) + repr(options.access)
        assert deepcopy(options) == options


def test_a_token_goes_along_as_a_plain_string() -> None:
    """Requests are encoded by a library that takes no class of ours."""
    told = read_options({"nameserver": "h", "topic": "t", **ACCOUNT, "securitytoken": "T"}, False)
    assert "'T'" not in repr(told.access)
    found = told.access.client_options()["credentials"]
    assert isinstance(found, Credentials)
    assert {type(getattr(found, one.name)) for one in dataclasses.fields(found)} == {str}
    assert found.security_token == "T"


def test_an_account_comes_from_the_environment_unless_the_query_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "env")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "other")
    monkeypatch.setenv("AEROBEE_TLS", "1")
    told = cluster_options("h").access.client_options()
    assert told == {"credentials": Credentials("env", "other"), "tls": TLSConfig()}
    access = write_options({"nameserver": "h", **ACCOUNT, "tls": "false"}).access
    assert access.client_options() == {"credentials": Credentials("spark", "hush")}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"accesskey": "a"}, "one is given without the other"),
        ({"secretkey": "a"}, "one is given without the other"),
        ({**ACCOUNT, "credentialsfile": "f"}, "not together with the keys"),
        ({"tls": "false", "tlscafile": "f"}, "tls: is false, but tlsCaFile is given"),
        ({"tls": "maybe"}, "true or false"),
    ],
)
def test_half_an_account_and_tls_that_is_on_and_off_are_refused(
    raw: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        write_options({"nameserver": "h", **raw})


def test_keys_come_from_a_file_which_is_named_when_it_has_none(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    access = write_options({"nameserver": "h", "credentialsfile": str(file)}).access
    with pytest.raises(ConfigurationError, match=r"credentialsFile: .*tools\.yml"):
        access.client_options()
    for nothing in ("accessKey: a", "- hush", "{hush", "accessKey: a\nsecretKey:\n"):
        file.write_text(nothing)
        with pytest.raises(ConfigurationError, match="has no lines accessKey") as error:
            access.client_options()
        assert "hush" not in str(error.value)
    file.write_text("accessKey: spark\nsecretKey: 12345\n")
    assert access.client_options() == {"credentials": Credentials("spark", "12345")}


def test_name_servers_come_from_the_environment_or_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError, match="option nameServer: give the name servers"):
        read_options({"subscribe": "t"}, stream=False)
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert read_options({"subscribe": "t"}, stream=False).name_servers == ("env:1",)


def test_exactly_one_option_says_what_to_read() -> None:
    assert "not subscribe and subscribePattern together" in refused(subscribePattern="o.*")
    with pytest.raises(ConfigurationError, match="none is given"):
        read_options({"nameserver": "h"}, stream=True)


def test_a_group_is_made_up_from_name_servers_and_topics() -> None:
    found = read()
    assert found.group.startswith("spark_")
    assert len(found.group) == len("spark_") + 8
    assert not found.group_given
    assert read().group == found.group != read(nameServer="h3").group
    by_pattern = {"nameserver": "h", "subscribepattern": "o.*"}
    by_assign = {"nameserver": "h", "assign": '{"o":{"b":[0]}}'}
    assert read_options(by_pattern, True).group != read_options(by_assign, True).group


def test_progress_is_committed_when_a_group_is_named() -> None:
    assert not read(True).commit_offsets
    assert read(True, group="lake").commit_offsets
    assert not read(True, group="lake", commitOffsets="false").commit_offsets


def test_committed_needs_a_group_and_has_a_fallback() -> None:
    assert "committed needs the option group" in refused(startingOffsets="committed")
    found = read(startingOffsets="committed", group="g")
    assert found.starting == CommittedPosition(EarliestPosition())
    found = read(startingOffsets="committed", group="g", fallbackOffsets="latest")
    assert found.starting == CommittedPosition(LatestPosition())


def test_the_plain_time_counts_more_than_times_and_those_more_than_offsets() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders":5,"payments":6}',
        "startingTimestamp": "7",
    }
    assert read(**given).starting == TimePosition(7)
    del given["startingTimestamp"]
    given["startingOffsetsByTimestampStrategy"] = "latest"
    times = {"orders": 5, "payments": 6}
    assert read(**given).starting == TimePosition(topics=times, otherwise="latest")
    assert read(endingTimestamp="9").ending == TimePosition(9, otherwise="latest")


def test_a_batch_does_not_begin_where_it_ends() -> None:
    assert "would read nothing" in refused(startingOffsets="latest")
    assert "would read nothing" in refused(startingOffsets='{"orders":{"b":{"0":-1}}}')
    read(True, startingOffsets='{"orders":{"b":{"0":-1}}}')


@pytest.mark.parametrize("text", ["earliest", "committed", '{"orders":{"b":{"0":-2}}}'])
def test_a_batch_does_not_end_at_its_beginning(text: str) -> None:
    assert "endingOffsets: a batch ends at latest" in refused(endingOffsets=text, group="g")


@pytest.mark.parametrize(
    "given",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "1"},
        {"endingOffsetsByTimestamp": '{"orders":1}'},
    ],
)
def test_a_stream_has_no_end(given: dict[str, str]) -> None:
    assert "a stream has no end" in refused(True, **given)
    read(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"startingTimestamp": "1700000000"},
        {"startingOffsetsByTimestamp": '{"orders":1700000000}'},
        {"startingOffsetsByTimestamp": '{"orders":{"b":{"0":1700000000}}}'},
        {"endingTimestamp": "1700000000"},
    ],
)
def test_a_time_in_seconds_is_refused(given: dict[str, str]) -> None:
    assert "1700000000: these are seconds" in refused(False, **given)


def test_offsets_must_name_the_assigned_queues() -> None:
    raw = {"nameserver": "h", "assign": '{"o":{"b":[0,1]}}'}
    for text, said in (
        ('{"o":{"b":{"0":1}}}', "misses queue 1 of topic o on broker b"),
        ('{"o":{"b":{"0":1,"1":1,"2":1}}}', "outside of assign: queue 2 of topic o"),
    ):
        with pytest.raises(ConfigurationError, match=rf"startingOffsets: .*{said}"):
            read_options(raw | {"startingoffsets": text}, stream=False)
        with pytest.raises(ConfigurationError, match=f"endingOffsets: .*{said}"):
            read_options(raw | {"endingoffsets": text}, stream=False)
    found = read_options(raw | {"startingoffsets": '{"o":{"b":{"0":1,"1":2}}}'}, stream=False)
    assert found.starting == ExplicitPosition({Queue("o", "b", 0): 1, Queue("o", "b", 1): 2})


def test_the_least_batch_is_not_above_the_most() -> None:
    assert "is more than maxOffsetsPerTrigger" in refused(
        True, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9"
    )


def test_writing() -> None:
    found = write_options({"nameserver": "h", "topic": "t", "batchbytes": "2m"})
    assert (found.topic, found.batch_bytes, found.batch_rows) == ("t", 2 << 20, 256)
    assert (found.producer_group, found.codec, found.dedupe) == ("spark_sink", None, "none")
    assert write_options({"nameserver": "h", "compress": "LZ4"}).codec == "lz4"
    assert write_options({"nameserver": "h"}).topic is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("topic", "a,b", "rows go to one topic"),
        ("dedupe", "fence", "fence needs sinkId"),
        ("batchbytes", "5m", "is not a size"),
        ("onerror", "ignore", "is not one of fail"),
        ("startingoffsets", "latest", "no such option here"),
    ],
)
def test_what_cannot_be_written_with(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        write_options({"nameserver": "h", name: text})


def test_a_batch_does_not_end_before_it_begins() -> None:
    times = {"startingTimestamp": "9", "endingTimestamp": "8"}
    with pytest.raises(
        ConfigurationError, match="startingTimestamp 9 lies after endingTimestamp 8"
    ):
        read(**times)
    assert read(**times | {"endingTimestamp": "9"}).ending == TimePosition(9, otherwise="latest")


def test_reading_a_store() -> None:
    found = store_options({"path": "/data", "topics": "a,b", "mode": "audit"})
    assert (found.path, found.topics, found.mode) == ("/data", ("a", "b"), "audit")
    assert store_options({"path": "/data"}).topics == ()
    assert found.split_bytes == 128 << 20
    with pytest.raises(ConfigurationError, match="option path"):
        store_options({})
    with pytest.raises(
        ConfigurationError, match="startingTimestamp 9 lies after endingTimestamp 8"
    ):
        store_options({"path": "/data", "startingtimestamp": "9", "endingtimestamp": "8"})
    with pytest.raises(ConfigurationError, match="nameserver: there is no such option"):
        store_options({"path": "/data", "nameserver": "h"})


def test_looking_at_lag() -> None:
    found = lag_options({"nameserver": "h", "groups": "g"})
    assert (found.groups, found.topics) == (("g",), ())


@pytest.mark.parametrize("cls", spark_options.SECTIONS.values())
def test_every_option_has_a_meaning_a_name_and_a_default_that_it_takes(cls: type[Options]) -> None:
    told = meanings(cls)
    for option in declared(cls):
        assert told[option.field]
        text = spark_options.shown(option).strip("`")
        if text:
            assert value("x", text, option.hint) == option.default
    assert {name for option in declared(cls) for name in option.names} >= cls.aliases.keys()


def test_the_fields_that_are_no_options_are_made_of_others() -> None:
    made = {one.name for one in msgspec.structs.fields(ReadOptions)}
    made -= {option.field for option in declared(ReadOptions)}
    assert made == {"group_given", "starting", "ending"}


def test_a_stale_page_is_renewed() -> None:
    page = spark_options.PAGE.read_text(encoding="utf-8")
    stale = page.replace("| `subscribe`", "| `subscribbe`")
    assert stale != page
    assert spark_options.renewed(stale) == page
