"""What no honest broker, client or tool asks of a name server: an error that says why, or nothing.

The name server is the one inside a broker, which must not notice: its route stays, it stores and
gives out messages, and its loop stands still for no longer than a step.
"""

from __future__ import annotations

import json
import time
import zlib
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.health import rss_anon, slowness
from tests.kit.raw_client import RawConnection, pull_fields, send_fields
from tests.kit.stall_watch import WatchedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import AnyBroker, StartBroker
    from tests.kit.raw_client import RawAnswer

pytestmark = [pytest.mark.faults, pytest.mark.ours]

OK, SYSTEM_ERROR, NO_ROUTE, NOT_FOUND = 0, 1, 17, 22
SEND, PULL, ROUTE, REGISTER, UNREGISTER = 310, 11, 105, 103, 104
OWN_SUBSCRIPTION = 4
MiB = 1_048_576
STEP_MS = 20.0
WHO: dict[str, object] = {
    "brokerName": "b", "brokerAddr": "127.0.0.1:9", "clusterName": "c", "brokerId": 0,
}  # fmt: skip
VALUE: dict[str, object] = {"namespace": "n", "key": "k", "value": "v"}

FIELDS: dict[int, dict[str, object]] = {
    100: VALUE,
    101: {"namespace": "n", "key": "k"},
    102: {"namespace": "n", "key": "k"},
    103: {**WHO, "haServerAddr": "127.0.0.1:10"},
    104: WHO,
    105: {"topic": "T"},
    106: {},
    205: {"brokerName": "b"},
    206: {},
    216: {"topic": "T"},
    217: {"topic": "T"},
    219: {"namespace": "n"},
    224: {"cluster": "c"},
    304: {},
    311: {},
    312: {},
    313: {},
    322: WHO,
    327: {"brokerName": "b"},
    901: {"brokerName": "b", "clusterName": "c"},
    904: {"brokerName": "b", "brokerAddr": "127.0.0.1:9", "clusterName": "c"},
}
"""Every request to a name server, with what it requires."""
NUMBERS = [(code, name) for code, fields in FIELDS.items() for name in fields if name == "brokerId"]
NUMBERS += [(103, "heartbeatTimeoutMillis"), (103, "bodyCrc32")]
ABSURD = ["", " ", "../../etc/passwd", "a\0b", "\u202e\r\n", "x" * 20_000, "%RETRY%", "$ref"]
BODIES = [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 10_000, b"null", b'{"queueDatas":5}', b"x\xda"]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def names(broker: AnyBroker) -> Iterator[RawConnection]:
    """A connection to the name server; afterwards the broker behind it is as it was."""
    assert isinstance(broker, BrokerProcess)
    with RawConnection(broker.address) as client:
        work(client, broker)
        with RawConnection(broker.namesrv_address) as connection:
            yield connection
        work(client, broker)
    assert "Traceback" not in broker.child.errors()


def work(client: RawConnection, broker: AnyBroker) -> None:
    sent = client.call(SEND, send_fields("bystander", 0), b"as always")
    assert sent.code == OK, sent
    at = int(sent.ext["queueOffset"])
    fields = pull_fields("g", "bystander", 0, at, sysFlag=OWN_SUBSCRIPTION)
    assert client.call(PULL, fields).code == OK
    with RawConnection(broker.namesrv_address) as connection:
        route = connection.call(ROUTE, {"topic": "bystander"})
        assert broker.address.encode() in route.body


def expect_words(answer: RawAnswer) -> None:
    """An answer is no success without reason, and no look into our code."""
    assert answer.code in (OK, SYSTEM_ERROR, NO_ROUTE, NOT_FOUND), answer
    remark = answer.remark or ""
    assert (answer.code == OK) or remark
    assert "Traceback" not in remark
    assert ".py" not in remark
    assert "unpack" not in remark


def test_a_missing_field_is_named(names: RawConnection) -> None:
    for code, fields in FIELDS.items():
        for left_out in fields:
            given = {name: value for name, value in fields.items() if name != left_out}
            answer = names.call(code, given)
            assert answer.code == SYSTEM_ERROR, (code, left_out)
            assert left_out in (answer.remark or "")


def test_a_number_that_is_none_is_named(names: RawConnection) -> None:
    for code, name in NUMBERS:
        for value in ("first", "1.5", 1 << 70):
            answer = names.call(code, {**FIELDS[code], name: value})
            assert answer.code == SYSTEM_ERROR, (code, name, value)
            assert name in (answer.remark or "")


@pytest.mark.parametrize("value", ABSURD, ids=ascii)
def test_texts_beyond_reason_are_answered(names: RawConnection, value: str) -> None:
    for code, fields in FIELDS.items():
        for name in fields:
            if name != "brokerId":
                expect_words(names.call(code, {**fields, name: value}))
    names.call(UNREGISTER, WHO)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: ascii(body[:9]))
def test_bodies_that_are_none_are_answered(names: RawConnection, body: bytes) -> None:
    for code, fields in FIELDS.items():
        expect_words(names.call(code, fields, body))
    for compressed in (True, False):
        given = {**FIELDS[REGISTER], "compressed": compressed, "bodyCrc32": 1}
        answer = names.call(REGISTER, given, body)
        assert (answer.code, "crc32" in (answer.remark or "")) == (SYSTEM_ERROR, True)
    names.call(UNREGISTER, WHO)


# ── A name server among enemies ──


def topic_of(name: str, queues: int = 4) -> dict[str, Any]:
    return {
        "topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip


def body_of(topics: list[dict[str, Any]], counter: int = 1) -> bytes:
    table = {topic["topicName"]: topic for topic in topics}
    version = {"timestamp": 1, "counter": counter, "stateVersion": 0}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()


def bombs() -> Iterator[bytes]:
    yield zlib.compress(bytes(64 * MiB), 9)
    yield zlib.compress(pack(">i", 2) + b"{}" + pack(">i", 2**31 - 1), 9)
    yield zlib.compress(pack(">i", 2) + b"{}" + pack(">i", 1_000_000) + bytes(4 * MiB), 9)
    yield zlib.compress((pack(">i", 44) + b"[" * 44) * 50_000, 9)


def registrations(own: str) -> Iterator[tuple[dict[str, object], bytes]]:
    """Of brokers that nobody wants; `own` is the address of the broker in the process."""
    sane = FIELDS[REGISTER]
    many = [topic_of(f"hostile-{n:05}") for n in range(10_000)]
    for number in range(4):
        yield {**sane, "brokerName": f"b{number}", "brokerAddr": f"h:{number + 1}"}, body_of(many)
    some = body_of(many[:3])
    for name in ("a/../b", "a\0b", "x" * 300):
        yield {**sane, "brokerName": name}, some
    for address in ("nowhere", "h:99999"):
        yield {**sane, "brokerAddr": address}, some
    yield {**sane, "brokerId": -1}, some
    yield {**sane, "brokerName": "own"}, some
    yield {**sane, "brokerName": "own", "brokerId": 7, "brokerAddr": own}, some
    yield {**sane, "brokerAddr": own, "clusterName": "DefaultCluster"}, some
    yield sane, body_of([topic_of("wide", 2**31 - 1), topic_of("T")])
    yield sane, body_of([topic_of("t" * 60_000), topic_of("T")])
    for bomb in bombs():
        yield sane, bomb


def test_hostile_registrations_cost_little_and_change_nothing_of_the_broker(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    broker = WatchedBroker(data=place / "data", settings={"brokerName": "own"})
    rounds: list[tuple[float, float]] = []
    with broker.watched() as gaps:
        with RawConnection(broker.address) as client:
            work(client, broker)
            before = rss_anon(broker.child.pid)
            for _ in range(3):
                began = time.monotonic()
                hostile(broker)
                rounds.append((began, time.monotonic()))
            work(client, broker)
        assert rss_anon(broker.child.pid) - before < 60 * MiB
        with RawConnection(broker.namesrv_address) as names:
            assert names.call(ROUTE, {"topic": "hostile-00001"}).code == NO_ROUTE
    assert "Traceback" not in broker.child.errors()
    # What the host takes from the machine looks like a standstill, but not in every round.
    longest = [
        max((gap.cpu_ms for gap in gaps if began <= gap.at_s <= ended), default=0.0)
        for began, ended in rounds
    ]
    assert min(longest) < STEP_MS * slowness(), longest


def hostile(broker: BrokerProcess) -> None:
    """All of them over one connection, which closes; each ends as it should."""
    with RawConnection(broker.namesrv_address, timeout_s=30) as names:
        answers = [
            names.call(REGISTER, fields, body) for fields, body in registrations(broker.address)
        ]
    for answer in answers:
        expect_words(answer)
    # Taken in: the four of many topics, a slave of ours, and one that lies about its address.
    assert [answer.code for answer in answers].count(OK) == 6
