"""What the tests of replication share: messages of many sizes, and logs that are to be equal."""

from collections.abc import Mapping
from pathlib import Path

from tests.kit.broker_process import BrokerProcess
from tests.kit.java_server import JavaBroker
from tests.kit.raw_client import RawConnection, pull_fields, records, send_fields
from tests.kit.waiting import eventually

TOPIC, QUEUES = "copied", 4
SEGMENT = 131_072
COPIED_WITHIN_S = 120.0
UNIT_BYTES = 20
CREATE_TOPIC, SEND, PULL, RUNTIME_INFO = 17, 310, 11, 28
SUCCESS, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, NOT_FOUND = 0, 11, 12, 19

Either = BrokerProcess | JavaBroker


def body_of(number: int) -> bytes:
    """A body that says its number, of many sizes."""
    return b"%d " % number * (1 + number * 37 % 900)


def send(master: Either, numbers: range) -> list[int]:
    """Messages of many sizes; the codes of their answers."""
    codes = []
    with RawConnection(master.address) as connection:
        for number in numbers:
            fields = send_fields(TOPIC, number % QUEUES)
            codes.append(connection.call(SEND, fields, body_of(number)).code)
    return codes


def log_end(address: str) -> int:
    """The end of a broker's log."""
    with RawConnection(address) as connection:
        text = connection.call(RUNTIME_INFO).body.decode()
    return int(text.partition('"commitLogMaxOffset":"')[2].partition('"')[0])


def log_of(root: Path, end: int) -> bytes:
    """The bytes of a log."""
    segments = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in segments)[:end]


def queue_of(root: Path, topic: str, queue: int, units: int) -> bytes:
    """The first units of a queue."""
    files = sorted((root / "consumequeue" / topic / str(queue)).iterdir())
    return b"".join(path.read_bytes() for path in files)[: units * UNIT_BYTES]


def expect_equal_logs(master: Either, slave: Either) -> int:
    """Wait until the slave has all of the log, then compare the files; returns the end."""
    end = log_end(master.address)
    eventually(
        lambda: log_end(slave.address) == end, within_s=COPIED_WITHIN_S, what=f"a copy up to {end}"
    )
    assert log_of(slave.data, end) == log_of(master.data, end)
    return end


def expect_equal_queues(master: Either, slave: Either, units: int) -> None:
    """The first units of each queue are the same bytes on both sides, once they are written."""

    def unequal() -> list[int]:
        return [
            queue
            for queue in range(QUEUES)
            if queue_of(master.data, TOPIC, queue, units)
            != queue_of(slave.data, TOPIC, queue, units)
        ]

    eventually(lambda: not unequal(), within_s=COPIED_WITHIN_S, what="equal queues")


def wait_for_the_slave(master: Either) -> None:
    """Until the master has a slave in sync."""
    eventually(
        lambda: send(master, range(1)) == [SUCCESS],
        within_s=COPIED_WITHIN_S,
        what="a send that a slave has",
    )


def bodies_at(address: str, group: str = "reader") -> Mapping[int, list[bytes]]:
    """Queue → the bodies of all its messages, as a consumer pulls them there."""
    found: dict[int, list[bytes]] = {}
    with RawConnection(address) as connection:
        for queue in range(QUEUES):
            bodies = found[queue] = []
            while True:
                answer = connection.call(PULL, pull_fields(group, TOPIC, queue, len(bodies)))
                if answer.code == NOT_FOUND:
                    break
                assert answer.code == SUCCESS, (answer.code, answer.remark)
                bodies += [record.body for record in records(answer.body)]
    return found
