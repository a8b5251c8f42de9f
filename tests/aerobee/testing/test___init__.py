"""`aerobee.testing`: what its docs promise to those who test with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from aerobee import Message
from aerobee.blocking import Client, Producer, PullConsumer
from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.testing import TestBroker, broker
from aerobee.testing.plugin import aerobee_broker as aerobee_broker
from aerobee.testing.plugin import aerobee_virtual_broker as aerobee_virtual_broker

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3_600
START_S = 0.15


def send(running: TestBroker, body: bytes) -> None:
    with Client(running.namesrv) as client, Producer("p", client=client) as producer:
        assert producer.send(Message("orders", body)).ok


def bodies(running: TestBroker, wanted: int) -> set[bytes]:
    with Client(running.namesrv) as client, PullConsumer("g", client=client) as consumer:
        consumer.subscribe("orders")
        found: set[bytes] = set()
        while len(found) < wanted:
            found |= {message.body for message in consumer.poll(timeout=10.0)}
        return found


def test_a_client_talks_to_it_as_to_any_broker(aerobee_broker: TestBroker) -> None:
    send(aerobee_broker, b"one")
    send(aerobee_broker, b"two")
    assert bodies(aerobee_broker, 2) == {b"one", b"two"}


def test_a_restart_keeps_messages_and_ports() -> None:
    with broker() as running:
        address = running.namesrv
        send(running, b"kept")
        running.restart()
        assert running.namesrv == address
        assert bodies(running, 1) == {b"kept"}


def test_it_leaves_nothing_behind() -> None:
    with broker() as running:
        data = running.data
        send(running, b"x")
        assert (data / "commitlog").is_dir()
    assert not data.exists()


def test_a_directory_of_ones_own_stays_and_is_clean(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        send(running, b"x")
    assert (tmp_path / "data" / "commitlog").is_dir()
    assert not (tmp_path / "data" / "abort").exists()


def test_stopping_twice_is_stopping_once() -> None:
    with broker() as running:
        assert running.stop()
        assert running.stop()


def test_starting_one_that_runs_says_so() -> None:
    with broker() as running, pytest.raises(RuntimeError, match="runs already"):
        running.start()


def test_settings_are_those_of_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path, settings={"mappedFileSizeCommitLog": 1 << 20}) as running:
        send(running, b"x")
    assert (tmp_path / "commitlog" / "00000000000000000000").stat().st_size == 1 << 20


def test_a_wrong_setting_is_named() -> None:
    with (
        pytest.raises(ConfigurationError, match="mappedFileSizeCommitlogg"),
        broker(settings={"mappedFileSizeCommitlogg": 1}),
    ):
        pass


def test_a_taken_port_is_told_to_who_starts_it() -> None:
    with (
        broker() as first,
        pytest.raises(OSError, match="in use"),
        broker(settings={"listenPort": first.port}),
    ):
        pass


def test_virtual_time_goes_ahead_by_what_was_asked(aerobee_virtual_broker: TestBroker) -> None:
    broker, clock = aerobee_virtual_broker, time.monotonic
    first, before, called = clock(), broker.now_ms(), clock()
    broker.advance(HOUR_S)
    returned, after, last = clock(), broker.now_ms(), clock()
    # It goes on by itself meanwhile, as long as a busy machine takes.
    least, most = (returned - called) * 1_000 - 50, (last - first) * 1_000 + 50
    assert least <= after - before - HOUR_S * 1_000 <= most


def test_messages_carry_the_virtual_time(aerobee_virtual_broker: TestBroker) -> None:
    aerobee_virtual_broker.advance(HOUR_S)
    send(aerobee_virtual_broker, b"later")
    with (
        Client(aerobee_virtual_broker.namesrv) as client,
        PullConsumer("g", client=client) as consumer,
    ):
        consumer.subscribe("orders")
        message = next(iter(consumer.poll(timeout=10.0)))
    now_ms = aerobee_virtual_broker.now_ms()
    assert now_ms - 10_000 < message.stored_at.timestamp() * 1000 <= now_ms
    assert message.stored_at.timestamp() > time.time() + HOUR_S - 60


def test_virtual_time_goes_on_behind_a_restart(aerobee_virtual_broker: TestBroker) -> None:
    aerobee_virtual_broker.advance(HOUR_S)
    before = aerobee_virtual_broker.now_ms()
    aerobee_virtual_broker.restart()
    assert before <= aerobee_virtual_broker.now_ms() < before + 10_000


@pytest.mark.parametrize(
    ("seconds", "jumps"), [(float("nan"), 1), (float("inf"), 1), (-1.0, 1), (1.0, 0)]
)
def test_what_is_no_time_to_pass_is_refused(
    aerobee_virtual_broker: TestBroker, seconds: float, jumps: int
) -> None:
    """And the broker is as before: nan would stop its clock for ever."""
    with pytest.raises(ValueError, match="advance"):
        aerobee_virtual_broker.advance(seconds, jumps=jumps)
    aerobee_virtual_broker.advance(1)


def test_real_time_cannot_be_moved() -> None:
    with broker() as running, pytest.raises(RuntimeError, match="virtual_time=True"):
        running.advance(1)


@pytest.mark.alone
def test_it_starts_in_150_ms(aerobee_broker: TestBroker) -> None:
    """The first start of a process imports the broker; this one is not the first."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        with broker():
            times.append(time.perf_counter() - began)
    assert min(times) < START_S
