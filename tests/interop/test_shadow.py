"""A shadow of a Java broker in production: it has everything, and the broker counts it for nothing.

The master waits for a second copy of each message. With the shadow alone, which has them within
milliseconds, each of these sends must fail as it does without any slave.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, pull_fields, send_fields, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TOPIC, SEGMENT = "shadowed", 131_072
CREATE_TOPIC, SEND, PULL, MAX_OFFSET, HA_STATUS = 17, 310, 11, 30, 907
FLUSH_SLAVE_TIMEOUT = 12


@pytest.fixture(params=VERSIONS)
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JavaBroker]:
    settings = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "mappedFileSizeCommitLog": SEGMENT,
    }
    java, home = toolkit(request.param), tmp_path / "java"
    with JavaBroker(toolkit=java, data=tmp_path / "master", home=home, settings=settings) as broker:
        with RawConnection(broker.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        yield broker


@pytest.fixture
def shadow(tmp_path: Path, master: JavaBroker) -> Iterator[BrokerProcess]:
    settings = {
        "brokerIP1": HOST,
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "shadow": True,
        "haMasterAddress": f"{HOST}:{master.ports.ha}",
        "mappedFileSizeCommitLog": SEGMENT,
    }
    with BrokerProcess(data=tmp_path / "shadow", settings=settings) as broker:
        yield broker


def sent(master: JavaBroker, *, waits: bool = True) -> int:
    fields = send_fields(TOPIC, 0, i="" if waits else "WAIT\x01false\x02")
    with RawConnection(master.address, timeout_s=20) as connection:
        return connection.call(SEND, fields, b"x" * 700).code


def queue_end(address: str) -> int:
    with RawConnection(address) as connection:
        return int(connection.call(MAX_OFFSET, {"topic": TOPIC, "queueId": 0}).ext["offset"])


def wait_for(shadow: BrokerProcess, count: int) -> None:
    """Until it has all that was sent. A Java master tells less for a moment, as it builds its
    queues behind its answers.
    """
    eventually(lambda: queue_end(shadow.address) == count, within_s=30, what=f"{count} messages")


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def test_a_shadow_has_everything_and_counts_for_nothing(
    master: JavaBroker, shadow: BrokerProcess
) -> None:
    # A master sends a new slave its last segment only, and is not followed while its log is empty.
    assert sent(master, waits=False) == 0
    wait_for(shadow, 1)
    for _ in range(299):
        assert sent(master, waits=False) == 0
    wait_for(shadow, 300)
    assert sent(master) == FLUSH_SLAVE_TIMEOUT
    wait_for(shadow, 301)
    with RawConnection(shadow.address) as connection:
        answer = connection.call(PULL, pull_fields("G", TOPIC, 0, 300))
        assert (answer.code, b"x" * 700 in answer.body) == (0, True)
    if not master.toolkit.version.startswith("4."):
        with RawConnection(master.address) as connection:
            status = json.loads(connection.call(HA_STATUS).body)
        assert status["inSyncSlaveNums"] == 0
        assert [one["inSync"] for one in status["haConnectionInfo"]] == [False]

    # A send waits; the shadow has its message, dies, and comes again while it still waits.
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(sent(master)))
    waiting.start()
    wait_for(shadow, 302)
    shadow.kill()
    shadow.start()
    waiting.join()
    assert codes == [FLUSH_SLAVE_TIMEOUT]
    assert sent(master, waits=False) == 0
    wait_for(shadow, 303)

    # Its master restarts, and it goes on.
    master.kill()
    master.start()
    assert sent(master, waits=False) == 0
    wait_for(shadow, 304)
    assert sent(master) == FLUSH_SLAVE_TIMEOUT
    wait_for(shadow, 305)
    end = len(log_of(shadow.data).rstrip(b"\0"))
    assert end > SEGMENT
    assert log_of(shadow.data)[:end] == log_of(master.data)[:end]
