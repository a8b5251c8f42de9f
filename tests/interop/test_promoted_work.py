"""What a master had begun goes on at the slave that takes its place: once, and all of it.

The master is lost and the slave promoted, or the two exchange their roles.

Delays, timers, checks of transactions and pops, some done before the loss and some in flight.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.blocking import AdminClient
from tests.interop.copies import CREATE_TOPIC, SEGMENT, SEND, SUCCESS, wait_for_the_slave
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import (
    RawConnection,
    properties_text,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

HEART_BEAT, CHECK_TRANSACTION_STATE, ALL_DELAYS, POP = 34, 39, 45, 200_050
HALF = 4
WORK, POPPED = "work", "popped"
SOON_S = 60.0
COMMON = {
    "brokerName": "broker-a",
    "brokerIP1": HOST,
    "haPeers": HOST,
    "mappedFileSizeCommitLog": SEGMENT,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
}


@pytest.fixture
def lost(request: pytest.FixtureRequest) -> bool:
    """Whether the master is lost; else the two exchange their roles."""
    return bool(request.param)


@pytest.fixture
def slave(tmp_path: Path, lost: bool) -> Iterator[BrokerProcess]:
    settings = {
        **COMMON,
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "slaveTablesPeriod": 1_000,
        # Once it is the master it waits for the other one, or is alone.
        "inSyncReplicas": 1 if lost else 2,
    }
    with BrokerProcess(data=tmp_path / "slave", settings=settings) as broker:
        yield broker


@pytest.fixture
def master(tmp_path: Path, slave: BrokerProcess) -> Iterator[BrokerProcess]:
    settings = {**COMMON, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    ours = BrokerProcess(
        data=tmp_path / "master",
        namesrv=slave.namesrv_address,
        settings=settings | {"embeddedNamesrv": "false"},
    )
    with ours as broker:
        yield broker


def put(connection: RawConnection, topic: str, body: bytes, flag: int = 0, **text: str) -> None:
    fields = send_fields(
        topic, 0, a="makers", f=flag, g=round(time.time() * 1000), i=properties_text(**text)
    )
    assert connection.call(SEND, fields, body).code == SUCCESS


def bodies(broker: BrokerProcess) -> list[bytes]:
    """What consumers can have, sorted."""
    with RawConnection(broker.address) as connection:
        return sorted(record.body for record in read_topic(connection, WORK, 0))


def pop(connection: RawConnection, invisible_ms: int) -> list[bytes]:
    wanted = {"consumerGroup": "poppers", "topic": POPPED, "queueId": -1, "maxMsgNums": 8}
    how = {"invisibleTime": invisible_ms, "pollTime": 0, "order": False, "initMode": 0}
    return [record.body for record in records(connection.call(POP, wanted | how).body)]


def knows_what_is_done(slave: BrokerProcess) -> bool:
    """Whether the slave has the progress of the delay level and of the timers."""
    with RawConnection(slave.address) as connection:
        delays = json.loads(connection.call(ALL_DELAYS).body)["offsetTable"]
    path = slave.data / "config" / "timersDone.json"
    timers = json.loads(path.read_bytes()) if path.exists() else {"queueOffset": 0}
    return bool(delays) and timers["queueOffset"] > 0 and timers["readTime"] > delivered_ms(slave)


def delivered_ms(broker: BrokerProcess) -> float:
    """When the last of what is done was delivered, by the clock of its broker."""
    with RawConnection(broker.address) as connection:
        return max(record.store_timestamp for record in read_topic(connection, WORK, 0))


def is_checked(broker: BrokerProcess) -> bytes:
    """The half message that the broker asks its producer about."""
    with RawConnection(broker.address, timeout_s=SOON_S) as connection:
        client = {"clientID": "maker", "producerDataSet": [{"groupName": "makers"}]}
        connection.ask(HEART_BEAT, {}, json.dumps(client).encode())
        while True:
            asked = connection.hear_any()
            if asked.code == CHECK_TRANSACTION_STATE:
                return next(iter(records(asked.body))).body


@pytest.mark.parametrize("lost", [True, False], indirect=True)
def test_what_is_in_flight_goes_on_and_what_is_done_stays_done(
    master: BrokerProcess, slave: BrokerProcess, lost: bool
) -> None:
    with RawConnection(master.address) as connection:
        for topic in (WORK, POPPED):
            assert connection.call(CREATE_TOPIC, topic_fields(topic, 1)).code == SUCCESS
        wait_for_the_slave(master)
        put(connection, WORK, b"delay done", DELAY="1")
        put(connection, WORK, b"timer done", TIMER_DELAY_SEC="1")
        done = [b"delay done", b"timer done"]
        eventually(lambda: bodies(slave) == done, within_s=SOON_S, what="what is done")
        eventually(lambda: knows_what_is_done(slave), within_s=SOON_S, what="the progress")
        put(connection, WORK, b"delay in flight", DELAY="3")
        put(connection, WORK, b"timer in flight", TIMER_DELAY_SEC="10")
        put(connection, WORK, b"half", HALF, TRAN_MSG="true", PGROUP="makers", UNIQ_KEY="0A01")
        put(connection, POPPED, b"not acknowledged")
        eventually(
            lambda: pop(connection, 10_000) == [b"not acknowledged"],
            within_s=SOON_S,
            what="a pop",
        )
    with AdminClient(slave.namesrv_address) as admin:
        if lost:
            master.kill()
            admin.promote(slave.address, accepted=["master-alive"])
        else:
            admin.switch(master.address, slave.address)
    assert is_checked(slave) == b"half"
    everything = sorted([*done, b"delay in flight", b"timer in flight"])
    eventually(lambda: bodies(slave) == everything, within_s=SOON_S, what="what was in flight")
    with RawConnection(slave.address) as connection:
        eventually(
            lambda: pop(connection, 1_000) == [b"not acknowledged"],
            within_s=SOON_S,
            what="the pop again",
        )
    # What would be delivered twice would have come by now.
    assert bodies(slave) == everything
    if not lost:
        eventually(lambda: bodies(master) == everything, within_s=SOON_S, what="its copy")
