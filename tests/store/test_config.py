"""The settings of the store: what stands there is what RocketMQ has, unless a sentence says so."""

from __future__ import annotations

import dataclasses

import pytest

from aerobee.setting import KEY, Declaration
from aerobee.store.config import DEFAULT_DELAY_LEVELS, FlushDiskType, StoreConfig


def test_the_defaults_are_those_of_rocketmq() -> None:
    config = StoreConfig()
    assert config.mapped_file_size_commit_log_bytes == 1 << 30
    assert config.mapped_file_size_consume_queue_bytes == 300_000 * 20
    assert config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert config.sync_flush_timeout_ms == 5_000
    assert config.file_reserved_time_h == 72
    assert config.max_message_size_bytes == 4 << 20
    assert len(DEFAULT_DELAY_LEVELS.split()) == 18
    limits = (
        config.disk_max_used_space_ratio_percent,
        config.disk_space_clean_forcibly_ratio_percent,
        config.disk_space_warning_level_ratio_percent,
    )
    assert limits == (75, 85, 90)


def test_a_setting_can_not_change_under_its_reader() -> None:
    config = StoreConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.sync_flush_timeout_ms = 1  # type: ignore[misc]  # that is the point


def test_key_range_and_unit_stand_in_the_declaration() -> None:
    [declared] = (
        field.metadata[KEY]
        for field in dataclasses.fields(StoreConfig)
        if field.name == "sync_flush_timeout_ms"
    )
    assert declared == Declaration(key="syncFlushTimeout", ge=100, le=60_000, unit="ms", live=True)


def test_an_index_file_of_default_size_is_as_large_as_a_java_one() -> None:
    config = StoreConfig()
    assert 40 + 4 * config.max_hash_slot_num + 20 * config.max_index_num == 420_000_040
