"""The attacks of `docs/reference` on older brokers, by number, against the real process.

S1: settings as a way to run commands or to write files. S2: names as paths. S3: open to everybody
by default. S4: secrets in answers. S14: addresses that a client gives itself. S17: links in the
data directory.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st

from aerobee.broker.config import schema
from tests.faults.bad_requests import routed
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, pull_fields, send_fields, topic_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.faults, pytest.mark.ours]

UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG = 25, 318
NOT_SUPPORTED, NO_PERMISSION, INVALID_PARAMETER = 3, 16, 29
SECRET = "Xq7-initial-Pw"
USER = json.dumps({"username": "root", "password": SECRET})
SHELL = b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo touch hacked;\n"
"""CVE-2023-33246, as its exploit sends it."""
WRITE = b"configStorePath=/tmp/hacked\nproductEnvName=*/1 * * * * root touch hacked\\n\n"
"""CVE-2023-37582, as its exploit sends it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("security") / "below" / "data"
    with BrokerProcess(data=data, settings={"initAuthenticationUser": USER}) as broker:
        yield broker


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as client:
        yield client


def files(broker: BrokerProcess) -> set[Path]:
    """What lies beside the data directory and above it."""
    above = broker.data.parent.parent
    return {path for path in above.rglob("*") if broker.data not in (path, *path.parents)}


@pytest.mark.parametrize("body", [SHELL, WRITE, SHELL + b"traceOn=false\n"])
@pytest.mark.parametrize("code", [UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG])
@pytest.mark.parametrize("to_name_server", [False, True])
def test_s1_the_exploits_are_refused_and_logged(
    broker: BrokerProcess, body: bytes, code: int, to_name_server: bool
) -> None:
    before, told = files(broker), len(refusals(broker))
    address = broker.namesrv_address if to_name_server else broker.address
    with RawConnection(address) as client:
        served = any((one.code, one.to_name_server) == (code, to_name_server) for one in routed())
        answer = client.call(code, {}, body)
        assert answer.code == (NO_PERMISSION if served else NOT_SUPPORTED), answer
    assert files(broker) == before
    assert not Path("/tmp/hacked").exists()
    assert len(refusals(broker)) == told + served


def refusals(broker: BrokerProcess) -> list[str]:
    """Who was refused a change of settings, by the log."""
    log = broker.log.read_text(encoding="utf-8")
    return [one["address"] for one in events(log) if one["event"] == "config.change_refused"]


def test_s1_no_key_of_rocketmq_changes_unless_it_is_declared_so(client: RawConnection) -> None:
    live = {name for name, key in schema.SCHEMA.items() if key.declaration.live}
    names = {schema.canon(name): name for name in schema.KNOWN}
    fixed = [name for canonical, name in names.items() if canonical not in live]
    assert len(fixed) > 400
    for name in fixed:
        answer = client.call(UPDATE_BROKER_CONFIG, {}, f"{name}=1\ntraceOn=true\n".encode())
        assert answer.code == NO_PERMISSION, (name, answer)
        assert name in str(answer.remark)


PATHS = (
    "../../x",
    "..",
    "/etc/x",
    "a/../../b",
    "a\\..\\b",
    "%RETRY%../x",
    "%LMQ%a/1",
    "a\0b",
    "~x",
)


@pytest.mark.parametrize("name", PATHS, ids=ascii)
def test_s2_no_name_leads_out_of_the_store(
    broker: BrokerProcess, client: RawConnection, name: str
) -> None:
    before = files(broker)
    queues = f"INNER_MULTI_DISPATCH\x01{name}\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    group = json.dumps({"groupName": name}).encode()
    beat = {"clientID": name, "consumerDataSet": [{"groupName": name}], "producerDataSet": []}
    topics = {"topicConfigList": [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1}]}
    for code, fields, body in (
        (310, send_fields(name, 0), b"x"),
        (17, topic_fields(name), b""),
        (18, {}, json.dumps(topics).encode()),
        (200, {}, group),
        (11, pull_fields(name, "TBW102", 0, 0), b""),
        (36, {"offset": 0, "group": name, "delayLevel": 1, "originTopic": name}, b""),
    ):
        assert client.call(code, fields, body).code != 0, (code, name)
    # Properties are stored as they come, and lead nowhere.
    assert client.call(310, send_fields("plain", 0, i=queues), b"x").code == 0
    client.call(34, {}, json.dumps(beat).encode())
    client.call(215, {"topic": name})
    assert files(broker) == before
    for path in broker.data.rglob("*"):
        assert path.name != "x", path


NAMES = st.text(st.sampled_from("./\\~%|-_aZ0 \0\n\x1b:*é€"), min_size=1, max_size=40)
LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


@hypothesis.settings(max_examples=60)
@hypothesis.given(name=NAMES, prefix=st.sampled_from(["", "%RETRY%", "%DLQ%", "%LMQ%", "../"]))
def test_s2_whatever_the_name_all_files_have_legal_names(
    broker: BrokerProcess, name: str, prefix: str
) -> None:
    name = prefix + name
    before = files(broker)
    group = json.dumps({"groupName": name}).encode()
    beat = json.dumps({"clientID": name, "consumerDataSet": [], "producerDataSet": []}).encode()
    with RawConnection(broker.address) as client:
        sent = client.call(310, send_fields(name, 0), b"x")
        assert sent.code != 0 or LEGAL.fullmatch(name), name
        for code, fields, body in (
            (17, topic_fields(name), b""),
            (200, {}, group),
            (11, pull_fields(name, name, 0, 0), b""),
            (15, {"consumerGroup": name, "topic": name, "queueId": 0, "commitOffset": 1}, b""),
            (34, {}, beat),
            (207, {"groupName": name}, b""),
            (215, {"topic": name}, b""),
        ):
            client.call(code, fields, body)
    assert files(broker) == before
    for folder in ("consumequeue", "config", "index"):
        for path in (broker.data / folder).rglob("*"):
            assert re.fullmatch(r"[%|a-zA-Z0-9_.-]+", path.name), path


def test_s3_an_address_for_everybody_needs_a_word(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data", settings={"bindAddress": "0.0.0.0"})
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert "bindAddress" in str(refused.value)
    assert "insecure" in str(refused.value)


@pytest.mark.parametrize("code", [*range(50, 55), *range(3_001, 3_011)])
def test_s4_the_tables_of_users_are_not_there_to_be_asked(client: RawConnection, code: int) -> None:
    served = any(one.code == code for one in routed())
    assert served or client.call(code, {"username": "root"}).code == NOT_SUPPORTED


def test_s4_no_answer_and_no_log_line_holds_a_secret(broker: BrokerProcess) -> None:
    silent = {37}  # Answers nothing when there is nothing to end.
    for one in routed():
        address = broker.namesrv_address if one.to_name_server else broker.address
        if one.code in silent:
            continue
        with RawConnection(address, timeout_s=30) as client:
            answer = client.call(one.code, one.fields, one.body)
            text = f"{answer.remark}{dict(answer.ext)}".encode() + answer.body
            assert SECRET.encode() not in text, one.name
    assert SECRET not in broker.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 10911\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\2\1\xc0\0\2\2\0\1*\x9f",
    ],
    ids=["text", "binary"],
)
def test_s14_nobody_gives_himself_another_address(broker: BrokerProcess, header: bytes) -> None:
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(header)
        assert client.recv(1) == b""
    log = broker.log.read_text(encoding="utf-8")
    assert "192.0.2.1" not in {str(one.get("address")).partition(":")[0] for one in events(log)}


def test_s17_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    outside.mkdir()
    with BrokerProcess(data=data) as broker, RawConnection(broker.address) as client:
        assert client.call(310, send_fields("linked", 0), b"x").code == 0
    moved = [path for path in data.rglob("*") if path.is_file() and path.name != "lock"]
    assert {path.parent.name for path in moved} >= {"data", "config", "commitlog"}
    kept: dict[Path, tuple[int, int]] = {}
    for number, path in enumerate(moved):
        target = path.rename(outside / str(number))
        path.symlink_to(target)
        kept[target] = (target.stat().st_mtime_ns, target.stat().st_size)
    broker = BrokerProcess(data=data)
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert "symbolic link" in str(refused.value)
    told = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in kept}
    assert told == kept
