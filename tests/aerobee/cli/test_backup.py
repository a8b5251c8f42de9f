"""`aerobee backup`: a store is copied while it is written, and a broker starts on the copy."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.blocking import (
    AdminClient,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from aerobee.cli.backup import UNIT_BYTES, Copy, Place, units_end
from aerobee.cli.border import DONE, FAILED, WRONG_USAGE, exit_code_of
from aerobee.cli.main import run as run_line
from aerobee.client import factory
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.steps.effects import Clock
from aerobee.store.format.names import SAVED_TOPICS
from aerobee.testing import TestBroker, broker
from tests.kit.broker_process import BrokerProcess
from tests.kit.mounts import unreadable

pytestmark = pytest.mark.service

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
}
WITHIN_S = 60
BEFORE = 600
"""Messages of 4 KiB, over three segments."""


def read_all(namesrv: str, topic: str) -> set[bytes]:
    """The bodies in a topic that no call before this one has read."""
    bodies: set[bytes] = set()
    with PullConsumer("r", namesrv, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        while found := consumer.poll(timeout=3):
            bodies |= {one.body.rstrip(b".") for one in found}
    return bodies


def test_a_backup_under_load_has_all_that_was_acknowledged_before_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    stop = threading.Event()
    before: set[bytes] = set()
    with BrokerProcess(data=data, settings=SETTINGS) as source:
        monkeypatch.setenv("NAMESRV_ADDR", source.namesrv_address)

        def load() -> None:
            with Producer(source.namesrv_address, group="load") as producer:
                number = 0
                while not stop.is_set():
                    producer.send(Message("orders", b"late-%d" % number))
                    number += 1

        with Producer(source.namesrv_address, group="p", compression=None) as producer:
            for number in range(BEFORE):
                producer.send(Message("orders", (b"%d" % number).ljust(4096, b".")))
                before.add(b"%d" % number)
            producer.send(Message("orders", b"timed", delay=3_600))
        thread = threading.Thread(target=load)
        thread.start()
        try:
            assert exit_code_of(run_line, ["backup", str(copy)]) == DONE, capfd.readouterr().err
            assert exit_code_of(run_line, ["backup", str(copy)]) == WRONG_USAGE
            for inside in (data / "copy", data / "commitlog" / "copy"):
                assert exit_code_of(run_line, ["backup", str(inside)]) == WRONG_USAGE
                assert f"{inside} is in the store" in capfd.readouterr().err
        finally:
            stop.set()
            thread.join()
    assert exit_code_of(run_line, ["store", "verify", str(copy)]) == DONE, capfd.readouterr().out
    assert (copy / SAVED_TOPICS).exists(), "a copy without its tables is no new directory"
    with BrokerProcess(data=copy, settings=SETTINGS) as restored:
        found = read_all(restored.namesrv_address, "orders")
        with Producer(restored.namesrv_address, group="p") as producer:
            producer.send(Message("orders", b"after"))
        assert b"after" in read_all(restored.namesrv_address, "orders")
    assert before <= found
    late = {int(body.removeprefix(b"late-")) for body in found - before}
    assert late == set(range(len(late))), "no gap in what came while it was copied"


def bodies(admin: AdminClient, topic: str) -> set[bytes]:
    """The bodies in the one queue of a topic, read without a consumer."""
    (queue,) = [one.queue for one in admin.describe_topic(topic).queues]
    return {one.body for one in admin.read_messages(queue, 0, max_messages=1_000)}


def await_commit(
    running: TestBroker,
    admin: AdminClient,
    body: bytes,
    check: Callable[[ReceivedMessage], TransactionState],
) -> None:
    """Let the broker ask for the end of its halves until one is committed.

    Each round has a connection of its own: the broker's time outruns the heartbeats of an old one.
    """
    for _ in range(ASKED_MAX):
        with TransactionProducer(running.namesrv, group="p", checker=check) as producer:
            producer.queues("paid")
            running.advance(ASKED_EVERY_S, jumps=ASKED_EVERY_S)
            for _ in range(100):
                if body in bodies(admin, "paid"):
                    return
                threading.Event().wait(0.05)
    raise AssertionError(f"{body!r} was not committed")


HOUR_S = 3_600
ASKED_EVERY_S, ASKED_MAX = 30, 6
TIMERS_S = (10, 100, 900)
"""The first is due while the copy is made."""
ROUNDS = 40
"""Minutes of the broker's time after its start on the copy."""


class Amid:
    """What a test does between the steps of a copy, each once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.done: list[str] = []

    def before(self, step: str, name: str, act: Callable[[], None]) -> None:
        """Have `act` happen before the method `step` of the copy meets a file or folder `name`."""
        method: Callable[..., object] = getattr(Copy, step)

        def amid(copy: Copy, *what: object, **how: object) -> object:
            if name not in self.done and any(name in str(one) for one in what):
                self.done.append(name)
                act()
            return method(copy, *what, **how)

        self.patch.setattr(Copy, step, amid)


def test_timers_and_transactions_in_flight_are_in_a_backup_that_retention_runs_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The copy is made while its files expire, timers fall due and transactions end."""
    copy = tmp_path / "copy"
    settings = {**SETTINGS, "fileReservedTime": 1, "cleanResourceInterval": 1_000}
    (tmp_path / "data").mkdir()
    states = {"during": TransactionState.UNKNOWN, "open": TransactionState.UNKNOWN}
    asked: list[str] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body.decode())
        return states.get(message.body.decode(), TransactionState.UNKNOWN)

    with broker(tmp_path / "data", settings=settings, virtual_time=True) as running:
        monkeypatch.setenv("NAMESRV_ADDR", running.namesrv)
        # A half whose birth is longer ago than messages are kept would be given up.
        monkeypatch.setattr(factory, "CLOCK", Clock(time.monotonic, running.now_ms))
        first = running.data / "commitlog" / "00000000000000000000"
        with (
            AdminClient(running.namesrv) as admin,
            TransactionProducer(
                running.namesrv, group="p", checker=check, compression=None
            ) as producer,
        ):
            for topic in ("old", "timed", "paid"):
                admin.create_topic(topic, queues=1)
            for number in range(BEFORE):
                producer.send(Message("old", (b"%d" % number).ljust(4096, b".")))
            running.advance(2 * HOUR_S)
            for delay in TIMERS_S:
                producer.send(Message("timed", b"timer-%d" % delay, delay=delay))
                producer.send(Message("timed", b"level-%d" % delay, delay_level=3))
            ends = {"before": TransactionState.COMMIT, "never": TransactionState.ROLLBACK, **states}
            for name, state in ends.items():
                half = Message("paid", name.encode())
                producer.send_in_transaction(half, lambda _, state=state: state)  # type: ignore[misc]  # a default is no parameter

            def end_one() -> None:
                """The broker asks about the half, and a timer is delivered."""
                states["during"] = TransactionState.COMMIT
                await_commit(running, admin, b"during", check)
                assert b"timer-10" in bodies(admin, "timed")
                producer.send(Message("timed", b"late", delay=600))

            def expire() -> None:
                admin.delete_expired_files()
                for _ in range(WITHIN_S):
                    if not first.exists():
                        return
                    running.advance(2, jumps=2)
                raise AssertionError("nothing was deleted")

            amid = Amid(monkeypatch)
            amid.before("plain", "timerwheel", end_one)
            amid.before("written", "commitlog/", expire)
            code = exit_code_of(run_line, ["backup", str(copy)])
            assert code == DONE, capfd.readouterr().err
            assert amid.done == ["timerwheel", "commitlog/"]
            assert not (copy / "commitlog" / first.name).exists()
        assert exit_code_of(run_line, ["store", "verify", str(copy)]) == DONE, capfd.readouterr()
        running.stop()
        running.data = copy
        running.start()
        states["open"] = TransactionState.COMMIT
        asked.clear()
        wanted = {f"{kind}-{delay}".encode() for kind in ("timer", "level") for delay in TIMERS_S}
        with AdminClient(running.namesrv) as admin:
            await_commit(running, admin, b"open", check)
            paid = bodies(admin, "paid")
            for _ in range(ROUNDS):
                found = bodies(admin, "timed")
                if wanted <= found:
                    break
                running.advance(60, jumps=60)
    assert wanted <= found <= wanted | {b"late"}
    assert paid == {b"before", b"during", b"open"}
    assert set(asked) == {"open"}, "what had ended is not asked for"


def test_no_half_backup_is_left_and_what_is_no_running_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy"
    with BrokerProcess(data=tmp_path / "data", settings=SETTINGS) as source:
        monkeypatch.setenv("NAMESRV_ADDR", source.namesrv_address)
        code = exit_code_of(run_line, ["backup", str(target), "--data", str(tmp_path)])
        assert code == WRONG_USAGE
        assert "--data" in capfd.readouterr().err

        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("aerobee.cli.backup.sync_folder", broken)
        assert exit_code_of(run_line, ["backup", str(target)]) == FAILED
        assert "no backup: " in capfd.readouterr().err
        assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "data.log"]

        def meanwhile(*_: object) -> None:
            # Another one begins behind the look at what is there.
            (tmp_path / "copy.part").mkdir()
            (tmp_path / "copy.part" / "theirs").touch()

        monkeypatch.setattr("aerobee.cli.backup.check", meanwhile)
        assert exit_code_of(run_line, ["backup", str(target)]) == WRONG_USAGE
        assert "copy.part exists" in capfd.readouterr().err
    assert (tmp_path / "copy.part" / "theirs").exists()


def test_a_store_without_a_message_has_a_backup_that_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "copy"
    with BrokerProcess(data=tmp_path / "data", settings=SETTINGS) as source:
        monkeypatch.setenv("NAMESRV_ADDR", source.namesrv_address)
        with AdminClient(source.namesrv_address) as admin:
            admin.create_topic("Orders", queues=2)
        assert exit_code_of(run_line, ["backup", str(target)]) == DONE
    assert exit_code_of(run_line, ["store", "verify", str(target)]) == DONE
    with (
        BrokerProcess(data=target, settings=SETTINGS) as restored,
        AdminClient(restored.namesrv_address) as admin,
    ):
        assert "Orders" in admin.topics()


def test_a_queue_ends_at_its_first_empty_unit() -> None:
    unit = (5).to_bytes(8, "big") + (91).to_bytes(4, "big") + bytes(8)
    empty = bytes(UNIT_BYTES)
    assert units_end(unit * 3 + empty + unit) == 3 * UNIT_BYTES
    assert units_end(unit * 2) == 2 * UNIT_BYTES
    assert units_end(empty) == 0


def test_a_backup_begins_behind_a_segment_that_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker frees the blocks piece by piece."""
    monkeypatch.setattr("aerobee.cli.backup.CHUNK_BYTES", 4 << 10)
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "commitlog").mkdir(parents=True)
    target.mkdir()
    size = 16 << 10
    old, new = [source / "commitlog" / f"{number * size:020}" for number in range(2)]
    for segment in (old, new):
        segment.write_bytes(b"x" * size)
    left = [size + (4 << 10)]

    def advance(copied: int) -> None:
        left[0] -= copied
        if not left[0]:
            os.truncate(old, 8 << 10)
            old.unlink()

    summary = Copy(Place(source, source / "commitlog"), target, advance).run(lambda: 2 * size)
    assert summary[:2] == (size, 2 * size)
    assert [path.name for path in (target / "commitlog").iterdir()] == [new.name]
    assert (target / "commitlog" / new.name).read_bytes() == b"x" * size


def test_a_backup_goes_on_behind_what_the_disk_cannot_read_of_the_log(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "commitlog").mkdir(parents=True)
    target.mkdir()
    size, begin = 16 << 10, 8 << 10
    segments = [source / "commitlog" / f"{number * size:020}" for number in range(2)]
    for segment in segments:
        segment.write_bytes(b"x" * size)
    copy = Copy(Place(source, source / "commitlog"), target, lambda _: None)
    with unreadable(segments[0], tmp_path / "bad", begin=begin):
        summary = copy.run(lambda: 2 * size)
    ((path, first_unread, end),) = copy.unread
    # The disk of the test may lose the page in front, too.
    assert (path, end) == (str(segments[0]), size)
    assert 0 < first_unread <= begin
    assert summary[:2] == (0, 2 * size)
    assert summary.unread_bytes == size - first_unread
    first, second = [(target / "commitlog" / segment.name).read_bytes() for segment in segments]
    assert first == b"x" * first_unread + bytes(size - first_unread)
    assert second == b"x" * size


def test_a_backup_names_the_byte_of_another_file_that_the_disk_cannot_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "commitlog").mkdir(parents=True)
    table = source / "checkpoint"
    table.write_bytes(b"x" * (16 << 10))
    (target := tmp_path / "target").mkdir()
    copy = Copy(Place(source, source / "commitlog"), target, lambda _: None)
    with (
        unreadable(table, tmp_path / "bad", begin=8 << 10),
        pytest.raises(OSError, match=rf"byte \d+: Input/output error: '{table}'"),
    ):
        copy.run(lambda: 0)
