"""A real broker: what clients send ends no service, over restarts; places of pools come back."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING
from urllib.request import urlopen

from aerobee.store.format.properties import encode
from aerobee.store.format.record import HEAD, MessageDraft
from aerobee.store.format.record import encode as encode_record
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, properties_text, records, send_fields, topic_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.raw_client import RawAnswer

SEND, END, CREATE_TOPIC, PULL = 310, 37, 17, 11
COMMIT = 8
DEPTH = re.compile(r'rocketmq_processor_watermark\{.*processor="([^"]+)".*\} ([0-9.]+)')
MiB = 1 << 20
TIMES = 3_000


def made(client: RawConnection, topic: str = "t") -> None:
    assert client.call(CREATE_TOPIC, topic_fields(topic, 1)).code == 0


def sent(client: RawConnection, topic: str = "t", body: bytes = b"x", **fields: str) -> RawAnswer:
    properties = properties_text(**fields)
    return client.call(SEND, send_fields(topic, 0, i=properties), body)


def ended(client: RawConnection, queue_offset: int, place: int, how: int = COMMIT) -> RawAnswer:
    fields = {
        "producerGroup": "p",
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": place,
        "commitOrRollback": how,
        "msgId": "K",
    }
    return client.call(END, fields)


def place_of(answer: RawAnswer) -> int:
    return int(answer.ext["msgId"][-16:], 16)


def depths(broker: BrokerProcess) -> dict[str, float]:
    with urlopen(f"http://{HOST}:{broker.ports.metrics}/metrics", timeout=10) as page:
        text = page.read().decode()
    return {name: float(depth) for name, depth in DEPTH.findall(text)}


def bodies(
    broker: BrokerProcess, topic: str, within_s: float = 10.0, least: int = 1
) -> list[bytes]:
    """What a pull of the topic brings, as soon as there is as much."""
    until = time.monotonic() + within_s
    with RawConnection(broker.address) as client:
        while True:
            fields = {
                "consumerGroup": "g",
                "topic": topic,
                "queueId": 0,
                "queueOffset": 0,
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subscription": "*",
                "subVersion": 0,
            }
            answer = client.call(PULL, fields)
            found = [one.body for one in records(answer.body)] if answer.code == 0 else []
            if len(found) >= least or time.monotonic() > until:
                return found


def forged(place: int) -> bytes:
    """A half as a record that begins there."""
    properties = encode(
        {
            "REAL_TOPIC": "SCHEDULE_TOPIC_XXXX",
            "REAL_QID": "99999999999",
            "DELAY": "1",
            "PGROUP": "p",
        }
    )
    host = bytes(8)
    draft = MessageDraft("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"bad", properties.encode(), host, host)
    return encode_record(draft, 0, place, 1)


def test_a_half_forged_in_a_body_is_no_half(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        with RawConnection(broker.address) as client:
            made(client)
            # The second body lies one record behind the first, and both are of one length.
            first = place_of(sent(client, body=forged(0), UNIQ_KEY="K"))
            second = place_of(sent(client, body=forged(0), UNIQ_KEY="K"))
            forged_at = second + (second - first) + HEAD.size
            third = place_of(sent(client, body=forged(forged_at), UNIQ_KEY="K"))
            assert third + HEAD.size == forged_at
            refused = ended(client, 0, forged_at)
            assert refused.code != 0
            real = sent(client, body=b"real", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="K")
            assert ended(client, int(real.ext["queueOffset"]), place_of(real)).code == 0
            assert sent(client, "t2", b"later", DELAY="1").code == 0
        assert bodies(broker, "t2") == [b"later"], "the schedule service lives"
        broker.restart()


def test_places_of_the_pools_come_back_whatever_is_answered_at_once(tmp_path: Path) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH", "dedupe": "t=UNIQ_KEY@600s"}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        with RawConnection(broker.address) as client:
            made(client)
            first = sent(client, UNIQ_KEY="K")
            assert first.code == 0
            half = sent(client, TRAN_MSG="true", PGROUP="p", UNIQ_KEY="H")
            assert ended(client, int(half.ext["queueOffset"]), place_of(half)).code == 0
            again = send_fields("t", 0, i=properties_text(UNIQ_KEY="K"))
            end = {
                "producerGroup": "p",
                "tranStateTableOffset": half.ext["queueOffset"],
                "commitLogOffset": place_of(half),
                "commitOrRollback": COMMIT,
                "msgId": "H",
            }
            for _ in range(TIMES // 100):
                for number in range(100):
                    client.ask(SEND, again, b"x", oneway=number % 10 == 0)
                    client.ask(END, end, oneway=number % 10 == 0)
                for _ in range(180):
                    assert client.hear().code == 0
            assert client.call(SEND, again, b"x").ext["msgId"] == first.ext["msgId"]
        assert set(depths(broker).values()) == {0.0}


def test_what_was_accepted_is_delivered_though_the_limit_was_lowered(tmp_path: Path) -> None:
    big = bytes(200_000)
    with BrokerProcess(data=tmp_path / "data") as broker:
        with RawConnection(broker.address) as client:
            made(client)
            for topic in ("delayed", "timed", "committed"):
                made(client, topic)
            assert sent(client, "delayed", big, DELAY="2").code == 0
            assert sent(client, "delayed", b"behind", DELAY="2").code == 0
            assert sent(client, "timed", big, TIMER_DELAY_SEC="4").code == 0
            assert sent(client, "timed", b"behind", TIMER_DELAY_SEC="4").code == 0
            half = sent(client, "committed", big, TRAN_MSG="true", PGROUP="p", UNIQ_KEY="K")
        assert broker.stop() == 0
        broker.settings = {"maxMessageSize": 2_048}
        broker.start()
        with RawConnection(broker.address) as client:
            assert sent(client, "delayed", big).code != 0
            assert ended(client, int(half.ext["queueOffset"]), place_of(half)).code == 0
        assert bodies(broker, "committed") == [big]
        assert bodies(broker, "delayed", 15, 2) == [big, b"behind"]
        assert sorted(bodies(broker, "timed", 15, 2)) == sorted([big, b"behind"])
