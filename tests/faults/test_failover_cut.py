"""A master whose log is cut does not lead by what it had delivered: the copies are gone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

import pytest

from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import FailoverGroup
from tests.kit.raw_client import RawConnection, properties_text, send_fields
from tests.kit.reading import read_topic
from tests.kit.replicas import SEND, SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 90.0
DELAYED, TIMED = "delayed", "timed"
DELAY_S = 6
LACKS = "the tables of the next master are not here"
SETTINGS: dict[str, object] = {
    "messageDelayLevel": f"{DELAY_S}s",
    "flushDelayOffsetInterval": 100,
}


def delivered(data: Path) -> bool:
    """Whether a member has saved that the only delayed message was delivered."""
    path = data / "config" / "delayOffset.json"
    return path.exists() and json.loads(path.read_text())["offsetTable"].get("1") == 1


def knows(data: Path, topics: Iterable[str]) -> bool:
    """Whether a member has saved these topics."""
    path = data / "config" / "topics.json"
    known = json.loads(path.read_text())["topicConfigTable"] if path.exists() else ()
    return set(topics) <= set(known)


def readiness(member: BrokerProcess) -> str:
    """What `/readyz` says; empty while it does not answer."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{member.ports.metrics}/readyz", timeout=30
        ) as page:
            return str(page.read())
    except urllib.error.HTTPError as error:
        with error, suppress(HTTPException):  # It stops, to begin anew.
            return str(error.read())
    except (HTTPException, OSError):
        pass
    return ""


def came(address: str, topic: str) -> list[str]:
    with RawConnection(address) as connection:
        return [one.body.decode() for one in read_topic(connection, topic, 0)]


def test_what_was_delivered_into_a_log_that_was_cut_is_delivered_again(tmp_path: Path) -> None:
    with (
        EtcdNode(data=tmp_path / "etcd") as etcd,
        FailoverGroup(tmp_path / "group", [etcd], size=2, settings=SETTINGS) as group,
    ):
        for topic in (DELAYED, TIMED):
            group.make_topic(topic)
        first = group.until_master()
        (second,) = set(group.members) - {first}
        one, other = group.members[first], group.members[second]
        waits = {DELAYED: {"DELAY": "1"}, TIMED: {"TIMER_DELAY_MS": str(DELAY_S * 1_000)}}
        with RawConnection(one.address) as connection:
            for topic, properties in waits.items():
                fields = send_fields(topic, 0, i=properties_text(**properties))
                assert connection.call(SEND, fields, b"it").code == SUCCESS
        eventually(lambda: knows(other.data, waits), within_s=WITHIN_S, what="copied tables")
        # Alone it delivers, and nobody confirms that.
        other.kill()
        eventually(lambda: delivered(one.data), within_s=WITHIN_S, what="a delivery that is saved")
        # Producers get no more than a time-out; who is asked knows why.
        stalled = f"no send is acknowledged: members [{second}] of the sync set do not follow"
        eventually(lambda: stalled in readiness(one), within_s=WITHIN_S, what="the reason")
        one.kill()
        other.start()
        eventually(
            lambda: group.record().get("master") == second, within_s=WITHIN_S, what="the other one"
        )
        one.start()
        eventually(
            lambda: "replication.cut_begun" in one.log.read_text(),
            within_s=WITHIN_S,
            what="the first one is cut",
        )
        # Again the master is gone, before the first one has its tables.
        other.kill()
        eventually(
            lambda: group.record()["master"] == first or LACKS in readiness(one),
            within_s=WITHIN_S,
            what="the first one runs again, and the lease is over",
        )
        assert group.record()["master"] == second
        other.start()
        for topic in waits:
            eventually(
                lambda: came(group.members[group.until_master()].address, topic) == ["it"],  # noqa: B023  (called at once)
                within_s=WITHIN_S,
                what=f"what is {topic}",
            )
