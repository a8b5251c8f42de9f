"""The table of all settings and the rule of their names."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from aerobee.broker.config.explained import MEANINGS
from aerobee.broker.config.schema import KNOWN, SCHEMA, SECTIONS, canon, env, nearest, snake

UNIT_SUFFIX = {"ms": "_ms", "s": "_s", "h": "_h", "B": "_bytes", "%": "_percent"}
UNIT_WORDS = ("seconds", "second", "sec", "millis", "mills", "bytes")
EVERY_NAME = sorted({key.name for key in SCHEMA.values()} | set(KNOWN.values()))


@pytest.mark.parametrize(
    ("name", "yaml"),
    [
        ("flushDiskType", "flush_disk_type"),
        ("checkCRCOnRecover", "check_crc_on_recover"),
        ("destroyMapedFileIntervalForcibly", "destroy_maped_file_interval_forcibly"),
        ("enableDLegerCommitLog", "enable_d_leger_commit_log"),
        ("brokerIP1", "broker_ip1"),
        ("useTLS", "use_tls"),
        ("putMsgIndexHightWater", "put_msg_index_hight_water"),
        ("statRocksDBCQIntervalSec", "stat_rocks_dbcq_interval_sec"),
    ],
)
def test_a_rocketmq_name_has_one_yaml_spelling(name: str, yaml: str) -> None:
    assert snake(name) == yaml
    assert canon(yaml) == canon(name)
    assert env(name) == "AEROBEE_" + yaml.upper()


def test_no_two_keys_share_a_canonical_name_or_a_yaml_spelling() -> None:
    for spelling in (canon, snake, env):
        count = Counter(spelling(name) for name in EVERY_NAME)
        assert [name for name, times in count.items() if times > 1] == []


def test_the_data_file_knows_every_key_of_the_reference_versions() -> None:
    assert len(KNOWN) == 555
    assert {
        "transientStorePoolEnable",
        "enableDLegerCommitLog",
        "commercialTimerCount",
        "minLiteTTl",
    } <= set(KNOWN.values())


def test_a_key_is_either_rocketmqs_or_marked_as_our_own() -> None:
    for name, key in SCHEMA.items():
        assert (name in KNOWN) != key.declaration.own, key.name
        assert key.name == KNOWN.get(name, key.name)


def test_the_attribute_is_the_yaml_spelling_with_the_unit_behind_it() -> None:
    for key in SCHEMA.values():
        words = snake(key.name)
        ending = next((word for word in UNIT_WORDS if words.endswith("_" + word)), "")
        stem = words.removesuffix("_" + ending) if ending else words
        suffix = UNIT_SUFFIX.get(key.declaration.unit, "")
        said = re.search(r"(^|_)(bytes|mills)(_|$)", stem)
        assert key.attribute == stem + ("" if said else suffix), key.name


def test_every_setting_has_a_meaning_and_every_number_a_range_that_holds_its_default() -> None:
    for key in SCHEMA.values():
        said = key.declaration
        assert MEANINGS[key.part, key.attribute], key.name
        if key.type is int:
            assert said.ge is not None, key.name
            assert said.le is not None, key.name
            assert isinstance(key.default, int)
            assert said.ge <= key.default <= said.le, key.name


def test_no_setting_that_may_change_while_it_runs_is_dangerous() -> None:
    live = [key for key in SCHEMA.values() if key.declaration.live]
    assert len(live) == 96
    for key in live:
        if not key.name.endswith("OfAddress"):
            assert not re.search(r"path|name|addr|port|class|host", snake(key.name)), key.name
        assert key.type in (int, bool) or key.name in ("deleteWhen", "logLevel")


def test_every_field_of_every_part_is_a_setting_or_belongs_to_one() -> None:
    attributes = {(key.part, key.attribute) for key in SCHEMA.values()}
    attributes |= {
        (key.part, key.declaration.free) for key in SCHEMA.values() if key.declaration.free
    }
    fields = {(part, name) for part, cls in SECTIONS.items() for name in cls.__dataclass_fields__}
    assert fields == attributes


def test_a_typing_error_leads_to_the_nearest_name() -> None:
    assert nearest("flush_disc_type") == "flush_disk_type"
    assert nearest("brokerClustername1") == "broker_cluster_name"
    assert nearest("qqqqqq") == ""


def test_words_that_were_left_out_lead_to_the_setting_that_has_them() -> None:
    assert nearest("metrics_port") == "metrics_prom_exporter_port"
    assert nearest("metricsPort") == "metrics_prom_exporter_port"
