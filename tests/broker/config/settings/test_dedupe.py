"""The rules of dedupe, as text and as the YAML map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.load import load_config
from aerobee.broker.config.settings.dedupe import DedupeRule, normalized, parse

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig


def from_yaml(tmp_path: Path, text: str) -> BrokerConfig:
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    return load_config(file, environ={}, cpu_count=1, host_addresses=["127.0.0.1"])


def test_a_rule_has_topic_property_and_window() -> None:
    assert parse("orders=KEYS@10m; clicks = UNIQ_KEY @ 30s ;") == (
        DedupeRule("orders", "KEYS", 600),
        DedupeRule("clicks", "UNIQ_KEY", 30),
    )


def test_the_last_rule_of_a_topic_counts() -> None:
    assert normalized("t=KEYS@1m;t=id@2h") == "t=id@7200s"


@pytest.mark.parametrize(
    "text", ["orders", "orders=KEYS", "orders=@10m", "a b=KEYS@1m", "t=KEYS@10", "t=KEYS@1d"]
)
def test_a_broken_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="topic=property@window"):
        parse(text)


@pytest.mark.parametrize("window", ["0s", "25h", "999999999h"])
def test_a_window_has_bounds(window: str) -> None:
    with pytest.raises(ValueError, match="window of t must be 1s to 24h"):
        parse(f"t=KEYS@{window}")


def test_the_yaml_map_is_the_same(tmp_path: Path) -> None:
    config = from_yaml(
        tmp_path,
        "broker:\n  dedupe:\n    orders: {by: KEYS, window: 10m}\n    clicks: {window: 30s}\n",
    )
    assert config.broker.dedupe == "orders=KEYS@600s;clicks=UNIQ_KEY@30s"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("{by: KEYS}", "by and window are expected"),
        ("{by: KEYS, window: 10m, until: 3}", "by and window are expected"),
        ("10m", "by and window are expected"),
        ("{by: KEYS, window: soon}", "topic=property@window"),
    ],
)
def test_a_broken_yaml_rule_names_key_and_topic(tmp_path: Path, rule: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        from_yaml(tmp_path, f"broker:\n  dedupe:\n    orders: {rule}\n")
    assert "dedupe" in str(raised.value)
    assert "orders" in str(raised.value)
