"""`aerobee backup`: a store is copied while it is written, and a broker starts on the copy."""

import errno
import threading
from pathlib import Path

import pytest

from aerobee.blocking import Message, Producer, PullConsumer
from aerobee.cli.backup import UNIT_BYTES, units_end
from aerobee.cli.border import DONE, FAILED, WRONG_USAGE, exit_code_of
from aerobee.cli.main import run as run_line
from aerobee.client.settings.client import ConsumeFrom
from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
}
BEFORE = 600
"""Messages of 4 KiB, over three segments."""


def read_all(broker: BrokerProcess, topic: str) -> set[bytes]:
    """The bodies in a topic."""
    bodies: set[bytes] = set()
    with PullConsumer("r", broker.namesrv_address, start_from=ConsumeFrom.FIRST) as consumer:
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
    with BrokerProcess(data=data, settings=SETTINGS) as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)

        def load() -> None:
            with Producer(broker.namesrv_address, group="load") as producer:
                number = 0
                while not stop.is_set():
                    producer.send(Message("orders", b"late-%d" % number))
                    number += 1

        with Producer(broker.namesrv_address, group="p") as producer:
            for number in range(BEFORE):
                producer.send(Message("orders", (b"%d" % number).ljust(4096, b".")))
                before.add(b"%d" % number)
            producer.send(Message("orders", b"timed", delay=3_600))
        thread = threading.Thread(target=load)
        thread.start()
        try:
            assert exit_code_of(run_line, ["backup", str(copy)]) == DONE, capfd.readouterr().err
            assert exit_code_of(run_line, ["backup", str(copy)]) == WRONG_USAGE
        finally:
            stop.set()
            thread.join()
    assert exit_code_of(run_line, ["store", "verify", str(copy)]) == DONE, capfd.readouterr().out
    with BrokerProcess(data=copy, settings=SETTINGS) as restored:
        found = read_all(restored, "orders")
        with Producer(restored.namesrv_address, group="p") as producer:
            producer.send(Message("orders", b"after"))
        assert b"after" in read_all(restored, "orders")
    assert before <= found
    late = {int(body.removeprefix(b"late-")) for body in found - before}
    assert late == set(range(len(late))), "no gap in what came while it was copied"


def test_no_half_backup_is_left_and_what_is_no_running_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy"
    with BrokerProcess(data=tmp_path / "data", settings=SETTINGS) as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
        code = exit_code_of(run_line, ["backup", str(target), "--data", str(tmp_path)])
        assert code == WRONG_USAGE
        assert "--data" in capfd.readouterr().err

        def broken(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("aerobee.cli.backup.sync_folder", broken)
        assert exit_code_of(run_line, ["backup", str(target)]) == FAILED
        assert "no backup: " in capfd.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "data.log"]


def test_a_queue_ends_at_its_first_empty_unit() -> None:
    unit = (5).to_bytes(8, "big") + (91).to_bytes(4, "big") + bytes(8)
    empty = bytes(UNIT_BYTES)
    assert units_end(unit * 3 + empty + unit) == 3 * UNIT_BYTES
    assert units_end(unit * 2) == 2 * UNIT_BYTES
    assert units_end(empty) == 0
