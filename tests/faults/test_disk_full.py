"""A full disk under the real broker: sends are refused, reads go on, and it recovers by itself.

What was acknowledged before, while and after the disk was full is there; the process never dies of
it.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.history import History
from tests.kit.load import stored
from tests.kit.mounts import small_btrfs, small_file_system
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawAnswer, RawConnection, send_fields
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.faults

SERVICE_NOT_AVAILABLE = 14
MiB = 1_048_576
SETTINGS = {"mappedFileSizeCommitLog": 2 * MiB, "ephemeral": "true"}
NO_QUEUE_FLUSH = {
    "flushIntervalConsumeQueue": 60_000,
    "flushConsumeQueueThoroughInterval": 60_000,
}
RECOVERS_WITHIN_S = 12.0
"""Ten seconds are promised; two are for a busy machine."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with (
        small_file_system(tmp_path / "small", size_bytes=64 * MiB) as mount,
        BrokerProcess(data=mount / "data", settings=SETTINGS, log_path=tmp_path / "log") as broker,
    ):
        yield broker


@pytest.fixture
def sender(broker: BrokerProcess) -> Iterator["Sender"]:
    with RawConnection(broker.address, timeout_s=30) as connection:
        yield Sender(connection)


class Sender:
    """Sends one message after the other and keeps the books."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        self.history = History()
        self.number = 0

    def send(self) -> RawAnswer:
        self.number += 1
        uid = f"full.{self.number}"
        body = uid.encode() + b"|" + bytes(200_000)
        self.history.tried(uid, "full", "T", 0, body)
        answer = self.connection.call(310, send_fields("T", 0), body)
        if answer.code == 0:
            self.history.acked(uid, int(answer.ext["queueOffset"]))
        return answer

    def send_until_refused(self) -> RawAnswer:
        for _ in range(1_000):
            if (answer := self.send()).code != 0:
                return answer
        raise AssertionError("200 MB went onto a disk of 64 MiB")

    def check(self) -> None:
        self.history.check([stored(record) for record in read_topic(self.connection, "T", 0)])


def fill(directory: Path) -> Path:
    """Take the room that is left, but for 5 MiB, by a file that is none of the broker's."""
    free = os.statvfs(directory)
    filler = directory / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - 5 * MiB)
    return filler


def test_a_full_disk_refuses_sends_serves_reads_and_recovers_by_itself(
    broker: BrokerProcess, sender: Sender
) -> None:
    for _ in range(10):
        assert sender.send().code == 0
    filler = fill(broker.data.parent)

    refused = sender.send_until_refused()
    assert refused.code == SERVICE_NOT_AVAILABLE, refused
    assert refused.remark
    sender.check()
    assert sender.send().code == SERVICE_NOT_AVAILABLE, "still full"
    sender.check()

    filler.unlink()
    eventually(
        lambda: sender.send().code == 0,
        within_s=RECOVERS_WITHIN_S,
        every_s=0.2,
        what="sends are taken again after space came back",
    )
    sender.check()
    assert broker.stop() == 0, broker.child.errors()


def test_a_kill_on_a_full_disk_loses_nothing(broker: BrokerProcess, sender: Sender) -> None:
    sender.send()
    filler = fill(broker.data.parent)
    sender.send_until_refused()
    broker.kill()
    filler.unlink()
    broker.start()
    with RawConnection(broker.address) as sender.connection:
        sender.check()
        assert sender.send().code == 0
        sender.check()


def test_a_full_disk_that_copies_on_write_refuses_sends_and_ends_nobody(tmp_path: Path) -> None:
    """A page of a segment needs a new block there, though the segment has all of its own: in a
    mapping that is the end of the process.
    """
    with (
        small_btrfs(tmp_path / "small") as place,
        BrokerProcess(data=place / "data", settings=SETTINGS, log_path=tmp_path / "log") as broker,
        RawConnection(broker.address, timeout_s=30) as connection,
    ):
        sender = Sender(connection)
        for _ in range(3):
            assert sender.send().code == 0
        assert broker.log.read_text().count("commit_log.rolled") == 1
        filler = place / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                os.fsync(file.fileno())
                file.write(os.urandom(64_000))
        refused = sender.send_until_refused()
        assert refused.code == SERVICE_NOT_AVAILABLE, refused
        sender.check()
        filler.unlink()
        os.sync()
        eventually(
            lambda: sender.send().code == 0,
            within_s=2 * RECOVERS_WITHIN_S,
            every_s=0.2,
            what="sends are taken again after space came back",
        )
        sender.check()
        broker.kill()
        broker.start()
        with RawConnection(broker.address) as sender.connection:
            sender.check()


def fill_up(filler: Path) -> None:
    """Take the last block, too."""
    with filler.open("ab", buffering=0) as file:
        while os.statvfs(filler).f_bavail:
            file.write(bytes(4096))


def kill_with_topics_that_have_no_files(broker: BrokerProcess, count: int) -> Path:
    """Messages of so many topics in the log, whose queues no disk had room for. Returns what has
    taken the room.
    """
    filler = broker.data.parent / "filler"
    broker.stop()
    broker.settings = SETTINGS | NO_QUEUE_FLUSH
    broker.start()
    with RawConnection(broker.address, timeout_s=30) as connection:
        eventually(lambda: (broker.data / "reserve").exists(), within_s=20, what="has a reserve")
        for number in range(count):
            assert connection.call(310, send_fields(f"T{number}", 0), b"x").code == 0
    broker.kill()
    fill_up(filler)
    return filler


def test_a_start_on_a_full_disk_serves_consumers(broker: BrokerProcess) -> None:
    kill_with_topics_that_have_no_files(broker, 5)
    broker.start()
    with RawConnection(broker.address) as connection:
        assert len([*read_topic(connection, "T4", 0)]) == 1

        def refused() -> bool:
            answer = connection.call(310, send_fields("T0", 0), b"x")
            return answer.code == SERVICE_NOT_AVAILABLE

        eventually(refused, within_s=20, what="sends are refused")
    assert broker.stop() == 0, broker.child.errors()


def test_a_start_without_room_for_its_queues_says_so_and_may_be_tried_again(
    broker: BrokerProcess,
) -> None:
    filler = kill_with_topics_that_have_no_files(broker, 100)
    with pytest.raises(DidNotStart) as failed:
        broker.start()
    assert failed.value.exit_code == 1, "systemd tries again"
    assert "No space left on device): make room" in broker.child.errors()
    filler.unlink()
    broker.start()
    with RawConnection(broker.address) as connection:
        assert len([*read_topic(connection, "T99", 0)]) == 1


def test_a_broker_on_a_full_disk_stops_cleanly(broker: BrokerProcess, sender: Sender) -> None:
    fill(broker.data.parent)
    sender.send_until_refused()
    assert broker.stop() == 0, broker.child.errors()
    assert not (broker.data / "abort").exists()
