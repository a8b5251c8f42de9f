"""What is known of a setting is told in one place."""

from __future__ import annotations

import pytest

from aerobee.broker.config.explained import explained
from aerobee.broker.config.load import load_config

CONFIG = load_config(None, environ={"HOME": "/h"}, cpu_count=3, host_addresses=[], host_name="b")


def test_a_setting_is_explained_under_any_spelling_of_its_name() -> None:
    told = explained(CONFIG, "flushDiskType")
    assert told == explained(CONFIG, "flush_disk_type")
    assert told["about"] == "The store"
    assert told["default"] == told["value"] == "ASYNC_FLUSH"


def test_a_key_of_rocketmq_without_effect_says_why() -> None:
    assert str(explained(CONFIG, "serverWorkerThreads")["effect"])
    assert str(explained(CONFIG, "enableDetailStat")["effect"])


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="no such setting: flushDiskTypo; did you mean"):
        explained(CONFIG, "flushDiskTypo")
