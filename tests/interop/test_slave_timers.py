"""Timers of a master of ours outlive it on its Java slave.

The slave takes the log, and asks for the check point (codes 60 and 61 at the port two below): made
the master, it delivers what was left, and nothing that was delivered.
"""

import struct
from functools import partial
from pathlib import Path

import pytest

from tests.interop.copies import log_end
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TOPIC, SEGMENT = "timed", 131_072
CREATE_TOPIC, SEND, MAX_OFFSET, RUNTIME_INFO, TIMER_METRICS = 17, 310, 30, 28, 61
COPIED_WITHIN_S = 90.0
LATER_S = (30, 110)
"""The second where the first has come before the slave knew of it."""


def queue_end(address: str) -> int:
    with RawConnection(address) as connection:
        answer = connection.call(MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
    return int(answer.ext["offset"])


def send_timer(master: BrokerProcess, seconds: int) -> None:
    fields = send_fields(TOPIC, 0)
    fields["i"] = f"UNIQ_KEY\x01K{seconds}\x02TIMER_DELAY_SEC\x01{seconds}\x02"
    with RawConnection(master.address) as connection:
        assert connection.call(SEND, fields, b"%d" % seconds).code == 0


def has_copied(slave: JavaBroker, timers: int) -> bool:
    """Whether the slave has written down that its master has put so many timers into the wheel."""
    path = slave.data / "config" / "timercheck"
    return path.exists() and struct.unpack_from(">4q", path.read_bytes())[3] >= timers


def test_timers_are_delivered_once_by_the_slave_that_became_the_master(tmp_path: Path) -> None:
    ours = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "haPeers": HOST,
        "mappedFileSizeCommitLog": SEGMENT,
    }
    theirs: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "registerNameServerPeriod": 10_000,
        "mappedFileSizeCommitLog": SEGMENT,
        "timerWheelEnable": "true",
    }
    java, home = toolkit("5.5.0"), tmp_path / "java"
    with BrokerProcess(data=tmp_path / "master", settings=ours) as master:
        with RawConnection(master.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        theirs["namesrvAddr"] = master.namesrv_address
        often = theirs | {"timerFlushIntervalMs": 1_000}
        with JavaBroker(toolkit=java, data=tmp_path / "slave", home=home, settings=often) as slave:
            send_timer(master, 1)
            eventually(lambda: queue_end(master.address) == 1, within_s=20, what="a delivery")
            sent = 1
            for later_s in LATER_S:
                send_timer(master, later_s)
                sent += 1
                eventually(
                    partial(has_copied, slave, sent),
                    within_s=COPIED_WITHIN_S,
                    what="a copy of the check point",
                )
                eventually(
                    lambda: log_end(slave.address) == log_end(master.address),
                    within_s=COPIED_WITHIN_S,
                    what="a copy of the log",
                )
                if queue_end(master.address) < sent:
                    break
            master.kill()
            eventually(
                lambda: queue_end(slave.address) >= sent - 1, within_s=20, what="the delivery there"
            )
            assert queue_end(slave.address) == sent - 1
    promoted = theirs | {"brokerId": 0, "brokerRole": "ASYNC_MASTER", "namesrvAddr": None}
    with JavaBroker(
        toolkit=java, data=tmp_path / "slave", home=home, settings=promoted
    ) as master_now:
        eventually(
            lambda: queue_end(master_now.address) >= sent,
            within_s=LATER_S[-1] + COPIED_WITHIN_S,
            what="the delivery of what was left",
        )
        assert queue_end(master_now.address) == sent
