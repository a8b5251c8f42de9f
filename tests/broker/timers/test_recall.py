from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.timers.timer_properties import handle_of
from aerobee.remoting.wire.headers.send import RecallMessage
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read
from aerobee.store.format.system_names import WHEEL_TOPIC
from tests.broker.desk import open_desk, said

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trio

START_MS = 1_700_000_000_000


def handle(topic: str = "t", broker: str = "desk", after_ms: int = 10_000, key: str = "K") -> str:
    properties = {
        "TIMER_OUT_MS": str(START_MS + after_ms - 1),
        "REAL_TOPIC": topic,
        "UNIQ_KEY": key,
    }
    return handle_of(properties, broker) or ""


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_the_wish_is_stored_for_the_slot_of_the_timer(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async with open_desk(tmp_path, recall_message_enable=True, flush_disk_type=flush) as desk:
        desk.topic()
        header = RecallMessage(topic="t", recall_handle=handle(), producer_group="p")
        answer = await desk.ask(header)
        assert (answer.code, said(answer)) == (0, {"msgId": "K", "MSG_REGION": "DefaultRegion"})
        found = desk.store.get(WHEEL_TOPIC, 0, 0, 1)
        record = read(found.views[0])
        assert bytes(record.body) == b"0"
        stored = decode(record.properties)
        assert stored["TIMER_OUT_MS"] == str(START_MS + 9_000)
        assert (stored["UNIQ_KEY"], stored["TIMER_DEL_UNIQKEY"]) == ("K", "K")
        assert (stored["TAGS"], stored["PGROUP"]) == ("_RECALL_TAG_", "p")
        assert stored["REAL_TOPIC"] == "t"


async def test_a_broker_without_its_lease_says_so(tmp_path: Path) -> None:
    flush = FlushDiskType.SYNC_FLUSH
    async with open_desk(tmp_path, recall_message_enable=True, flush_disk_type=flush) as desk:
        desk.topic()
        desk.store.replicas.configure_group(lambda: -1, 3.0)
        desk.store.when_durable = desk.store.replicas.when_in_group
        header = RecallMessage(topic="t", recall_handle=handle(), producer_group="p")
        answer = await desk.ask(header)
        assert answer.code == 14
        assert "may be the master of its group no more" in (answer.remark or "")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"recall_handle": "nonsense"}, 604),
        ({"recall_handle": handle(topic="other")}, 604),
        ({"recall_handle": handle(broker="other")}, 604),
        ({"recall_handle": handle(after_ms=0)}, 604),
        ({"recall_handle": handle(key="K\x02REAL_TOPIC\x01u")}, 604),
        ({"recall_handle": handle(), "producer_group": "p\x02REAL_TOPIC\x01u"}, 604),
        ({"recall_handle": handle(after_ms=41 * 86_400_000)}, 604),
        ({"topic": "unknown", "recall_handle": handle(topic="unknown")}, 17),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_names_no_timer_of_ours_is_refused(
    tmp_path: Path, given: dict[str, Any], code: int
) -> None:
    async with open_desk(tmp_path, recall_message_enable=True) as desk:
        desk.topic()
        answer = await desk.ask(RecallMessage(**{"topic": "t", **given}))
        assert answer.code == code
        assert desk.store.commit_log.max_offset == 0


async def test_it_must_be_enabled_and_the_broker_must_serve(tmp_path: Path) -> None:
    header = RecallMessage(topic="t", recall_handle=handle())
    async with open_desk(tmp_path / "off") as desk:
        desk.topic()
        assert (await desk.ask(header)).code == 16
    later_ms = START_MS + 1_000_000
    how: dict[str, Any] = {
        "recall_message_enable": True,
        "start_accept_send_request_time_stamp_ms": later_ms,
    }
    async with open_desk(tmp_path / "later", **how) as desk:
        desk.topic()
        assert (await desk.ask(header)).code == 14


async def test_a_store_that_takes_nothing_is_said(tmp_path: Path) -> None:
    async with open_desk(tmp_path, recall_message_enable=True) as desk:
        desk.topic()
        desk.store.flags.set(Flag.DISK_FULL, "no room")
        answer = await desk.ask(RecallMessage(topic="t", recall_handle=handle()))
        assert answer.code == 1
        assert "no room" in (answer.remark or "")


@pytest.mark.parametrize(
    "topic",
    ["rmq_sys_REVIVE_LOG_DefaultCluster", WHEEL_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%g"],
)
async def test_nothing_of_the_broker_itself_can_be_taken_back(tmp_path: Path, topic: str) -> None:
    async with open_desk(tmp_path, recall_message_enable=True) as desk:
        text = f"v1 {topic} desk {START_MS + 10_000} t@0@0@g@1@desk@ck"
        forged = base64.urlsafe_b64encode(text.encode()).decode()
        if topic.startswith("%"):
            desk.topic(topic)
        end = desk.store.commit_log.max_offset
        answer = await desk.ask(
            RecallMessage(topic=topic, recall_handle=forged, producer_group="p")
        )
        assert answer.code == 16
        assert desk.store.commit_log.max_offset == end
