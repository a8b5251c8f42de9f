"""The settings of the network layer."""

from __future__ import annotations

from aerobee.remoting.config import RemotingConfig


def test_the_ports_of_rocketmq_are_the_default_on_this_host_only() -> None:
    config = RemotingConfig()
    assert (config.listen_port, config.vip_listen_port) == (10_911, 10_909)
    assert config.bind_address == "127.0.0.1"


def test_zero_water_marks_mean_a_mebibyte_and_a_quarter_of_it() -> None:
    config = RemotingConfig()
    assert (config.high_water_bytes, config.low_water_bytes) == (1 << 20, 1 << 18)


def test_a_high_mark_alone_pulls_the_low_one_below_it() -> None:
    config = RemotingConfig(write_buffer_high_water_mark_bytes=1 << 16)
    assert (config.high_water_bytes, config.low_water_bytes) == (1 << 16, 1 << 14)


def test_both_marks_are_taken_as_given() -> None:
    config = RemotingConfig(
        write_buffer_high_water_mark_bytes=2_000, write_buffer_low_water_mark_bytes=1_000
    )
    assert (config.high_water_bytes, config.low_water_bytes) == (2_000, 1_000)


def test_the_limits_of_a_frame_are_those_of_the_java_broker() -> None:
    config = RemotingConfig()
    assert (config.max_frame_bytes, config.max_header_bytes) == (16 << 20, 256 << 10)
