"""Access control of the real process with accounts of `plain_acl.yml`, from outside.

S3: accounts open the listeners. S4: each request code as nobody, as a user and as an administrator.
S5: one answer for an unknown account and a wrong key. S6: guessing is slow. S13, S17:
secrets and who may change them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.access.gate import GUESSES
from aerobee.broker.access.permissions import PERMISSIONS
from aerobee.cli.border import REFUSED, exit_code_of
from aerobee.cli.main import run as run_line
from aerobee.remoting.wire.request_signature import with_signature
from tests.faults.bad_requests import routed
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events, metrics_of
from tests.kit.process import DidNotStart
from tests.kit.raw_client import (
    Closed,
    RawAnswer,
    RawConnection,
    batch_body,
    properties_text,
    pull_fields,
    request_frame,
    send_fields,
    topic_fields,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

OK, SYSTEM_ERROR, SYSTEM_BUSY = 0, 1, 2
YEAR_MS = 365 * 86_400_000
PER_S = 2
LINE_MAX = 4_096
"""Characters: a few values of 256, each of which may take six."""
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
SECRET = "Xq7-secret-of-all"
ACL = f"""\
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- accessKey: the-admin
  secretKey: {SECRET}
  admin: true
- accessKey: one-shop
  secretKey: {SECRET}
  topicPerms: [orders=PUB|SUB, prices=SUB, payments=PUB]
  groupPerms: [readers=SUB]
- accessKey: nothing
  secretKey: {SECRET}
- accessKey: the-payer
  secretKey: {SECRET}
  topicPerms: [others=PUB]
- accessKey: reads-all
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [others=DENY]
- accessKey: trusted-here
  secretKey: {SECRET}
  whiteRemoteAddress: 127.0.0.*
"""


def write_acl(path: Path, text: str = ACL) -> None:
    path.write_text(text)
    path.chmod(0o600)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    root = tmp_path_factory.mktemp("access")
    write_acl(root / "plain_acl.yml")
    settings = {"aclEnable": True, "aclConfigDir": root, "autoCreateTopicEnable": False}
    settings |= {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}
    with BrokerProcess(data=root / "data", settings=settings) as broker:
        for topic in ("orders", "prices", "payments", "others"):
            assert call(broker, "the-admin", 17, topic_fields(topic)).code == OK
        yield broker


def call(
    broker: BrokerProcess,
    account: str | None,
    code: int,
    fields: Mapping[str, Any] | None = None,
    body: bytes = b"",
    *,
    secret: str = SECRET,
    to_name_server: bool = False,
) -> RawAnswer:
    address = broker.namesrv_address if to_name_server else broker.address
    with RawConnection(address, timeout_s=30) as client:
        return client.call(code, signed(account, fields or {}, body, secret), body)


def signed(
    account: str | None, fields: Mapping[str, Any], body: bytes = b"", secret: str = SECRET
) -> dict[str, Any]:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }
    return texts if account is None else with_signature(account, secret.encode(), texts, body)


def offset_of(answer: RawAnswer) -> int:
    """Where a message that was sent is in the log."""
    return int(answer.ext["msgId"][-16:], 16)


def beat(*groups: str, topic: str = "prices") -> bytes:
    consumers = [
        {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
        for group in groups
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


@pytest.mark.parametrize(
    ("account", "code", "fields", "body", "said"),
    [
        ("one-shop", 310, send_fields("orders", 0), b"x", None),
        ("one-shop", 310, send_fields("payments", 0), b"x", None),
        ("one-shop", 310, send_fields("prices", 0), b"x", "No permission for prices"),
        ("one-shop", 310, send_fields("others", 0), b"x", "No default permission for others"),
        ("one-shop", 320, send_fields("others", 0), b"x", "No default permission for others"),
        ("one-shop", 11, pull_fields("readers", "prices", 0, 0), b"", None),
        ("one-shop", 361, pull_fields("readers", "payments", 0, 0), b"", "No permission for payme"),
        ("one-shop", 11, pull_fields("others", "prices", 0, 0), b"", "No default permission for g"),
        ("one-shop", 11, pull_fields("readers", "%RETRY%x", 0, 0), b"", "No default permission f"),
        ("one-shop", 34, {}, beat("readers"), None),
        ("one-shop", 34, {}, beat("readers", "spies"), "No default permission for group"),
        ("one-shop", 34, {}, beat("readers", topic="others"), "No default permission for others"),
        ("one-shop", 202, {"topic": "payments"}, b"", None),
        ("one-shop", 202, {"topic": "others"}, b"", "No default permission for others"),
        ("one-shop", 203, {"consumerGroup": "spies"}, b"", "No default permission for group"),
        (
            "one-shop",
            307,
            {"consumerGroup": "spies", "clientId": "c"},
            b"",
            "No default permission",
        ),
        ("one-shop", 208, {"consumerGroup": "readers", "topicList": "orders;prices;"}, b"", None),
        ("one-shop", 208, {"consumerGroup": "readers", "topicList": "orders;others;"}, b"", "No d"),
        ("one-shop", 310, send_fields("RMQ_SYS_TRACE_TOPIC", 0), b"x", None),
        (
            "nothing",
            310,
            send_fields("RMQ_SYS_TRACE_TOPIC", 0),
            b"x",
            "No default permission for R",
        ),
        (
            "nothing",
            325,
            send_fields("DefaultCluster_REPLY_TOPIC", 0),
            b"x",
            "No default permission",
        ),
        ("one-shop", 17, topic_fields("mine"), b"", "Need admin permission for request code=17"),
        ("one-shop", 25, {}, b"traceOn=false", "Need admin permission for request code=25"),
        ("one-shop", 26, {}, b"", "Need admin permission for request code=26"),
        ("one-shop", 33, {"offset": 0}, b"", "Need admin permission for request code=33"),
        ("the-admin", 310, send_fields("others", 0), b"x", None),
        ("the-admin", 26, {}, b"", None),
        ("nothing", 310, send_fields("orders", 0), b"x", "No default permission for orders"),
        (None, 310, send_fields("orders", 0), b"x", "No accessKey is configured"),
        ("whoever", 310, send_fields("orders", 0), b"x", "Check signature failed for accessKey"),
    ],
)
def test_rights_decide(
    broker: BrokerProcess,
    account: str | None,
    code: int,
    fields: dict[str, Any],
    body: bytes,
    said: str | None,
) -> None:
    answer = call(broker, account, code, fields, body)
    if said is None:
        assert EXCEPTION not in (answer.remark or "")
        assert answer.code != SYSTEM_ERROR, answer.remark
    else:
        assert answer.code == SYSTEM_ERROR
        assert (answer.remark or "").startswith(EXCEPTION + said), answer.remark


def test_s4_sends_of_one_read_are_checked_one_by_one(broker: BrokerProcess) -> None:
    """S4: a right that is missing in the middle of sends that are served together."""
    refused: dict[int, tuple[str | None, str, str]] = {
        7: ("one-shop", "prices", SECRET),
        12: ("one-shop", "orders", "wrong"),
        20: (None, "orders", SECRET),
        25: ("the-payer", "orders", SECRET),
    }
    with RawConnection(broker.address, timeout_s=30) as client:
        frames = []
        for number in range(64):
            account, topic, secret = refused.get(number, ("one-shop", "orders", SECRET))
            key = f"UNIQ_KEY\x01together{number}"
            fields = signed(account, send_fields(topic, 1, i=key), b"x", secret)
            frames.append(request_frame(310, number, fields, b"x"))
        fields = signed("one-shop", send_fields("orders", 1), b"x")
        before = int(client.call(310, fields, b"x").ext["queueOffset"])
        client.send_bytes(b"".join(frames))
        answers = {answer.opaque: answer for answer in (client.hear() for _ in frames)}
        after = int(client.call(310, fields, b"x").ext["queueOffset"])
    assert {number for number, answer in answers.items() if answer.code != OK} == {*refused}
    assert after - before == len(frames) - len(refused) + 1


def test_a_field_that_is_there_twice_is_checked_as_it_is_used(broker: BrokerProcess) -> None:
    """The name that is checked and the name that is served are the same one, the last."""
    fields = signed("one-shop", {"topic": "others"} | pull_fields("readers", "others", 0, 0))
    for first, last in (("orders", "others"), ("others", "orders")):
        used = fields | {"topic": last}
        body = json.dumps({"code": 11, "opaque": 1, "extFields": used})
        body = body.replace('"extFields": {', f'"extFields": {{"topic": "{first}", ')
        values = with_signature("one-shop", SECRET.encode(), {**used, "topic": last}, b"")
        body = body.replace(fields["Signature"], values["Signature"])
        header = body.encode()
        with RawConnection(broker.address) as client:
            length = 4 + len(header)
            client.send_bytes(length.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
            remark = client.hear().remark or ""
        assert ("No default permission for others" in remark) is (last == "others"), remark


def test_rights_on_one_topic_open_no_other_by_offset(broker: BrokerProcess) -> None:
    sent = call(broker, "the-admin", 310, send_fields("others", 0), b"not for the shop")
    own = call(broker, "the-admin", 310, send_fields("orders", 0), b"for the shop")

    looked = call(broker, "one-shop", 33, {"offset": offset_of(own), "topic": "orders"})
    assert b"for the shop" in looked.body
    stolen = call(broker, "one-shop", 33, {"offset": offset_of(sent), "topic": "orders"})
    assert (stolen.code, stolen.body) == (SYSTEM_ERROR, b"")
    call(broker, "one-shop", 34, {}, beat("readers"))
    back = {"group": "readers", "delayLevel": 1, "originTopic": "orders"}
    assert call(broker, "one-shop", 36, back | {"offset": offset_of(own)}).code == OK
    refused = call(broker, "one-shop", 36, back | {"offset": offset_of(sent)})
    assert "look message by offset failed" in (refused.remark or "")
    with RawConnection(broker.address) as consumer:
        consumer.call(34, signed("one-shop", {}, beat("readers")), beat("readers"))
        shown = {"consumerGroup": "readers", "clientId": "c", "topic": "orders"}
        refused = call(broker, "the-admin", 309, shown | {"msgId": sent.ext["msgId"]})
        assert "there is no message" in (refused.remark or "")


def begin_half(broker: BrokerProcess, group: str, key: str) -> dict[str, object]:
    """A half of the topic `others`; the fields of a commit of it that names no topic."""
    properties = properties_text(TRAN_MSG="true", PGROUP=group, UNIQ_KEY=key)
    fields = send_fields("others", 0, a=group, f=4, g=round(time.time() * 1000), i=properties)
    half = call(broker, "the-admin", 310, fields, b"a half of others")
    assert half.code == OK, half.remark
    return {
        "producerGroup": group,
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": offset_of(half),
        "commitOrRollback": 8,
        "msgId": "",
    }


def test_nobody_ends_the_transactions_of_a_topic_without_rights(broker: BrokerProcess) -> None:
    """S4: whatever topic the request names, and also if it names none, as old clients do. The id
    of the message, which is a clock and a counter, is no right.
    """
    ends = begin_half(broker, "their-producers", "THEIR-KEY")
    for topic in ("orders", "", None):
        guessed = {"topic": topic, "transactionId": "THEIR-KEY", "msgId": "THEIR-KEY"}
        refused = call(broker, "one-shop", 37, ends | guessed)
        assert refused.code == SYSTEM_ERROR, topic
        assert "Find prepared transaction message failed" in (refused.remark or ""), topic
    refused = call(broker, "one-shop", 37, ends | {"topic": "others"})
    assert "No default permission for others" in (refused.remark or "")
    assert call(broker, "the-payer", 37, ends).code == OK


def test_only_who_may_send_to_a_topic_is_asked_for_its_transactions(broker: BrokerProcess) -> None:
    """S4: the question has the message in it, and anybody may say that he is in a group."""
    with RawConnection(broker.address) as spy, RawConnection(broker.address) as producer:
        for client, account in ((spy, "one-shop"), (producer, "the-payer")):
            named = {"clientID": account, "producerDataSet": [{"groupName": "asked"}]}
            joining = json.dumps(named).encode()
            assert client.call(34, signed(account, {}, joining), joining).code == OK
        begin_half(broker, "asked", "KEY-1")
        begin_half(broker, "asked", "KEY-2")
        for _ in range(2):
            question = producer.hear_any()
            assert b"a half of others" in question.body
            assert question.ext["topic"] == "others"
            ends = {"producerGroup": "asked", "msgId": "", "commitOrRollback": 12}
            ends |= {
                name: question.ext[name] for name in ("tranStateTableOffset", "commitLogOffset")
            }
            answered = signed("the-payer", ends | {"topic": question.ext["topic"]})
            producer.ask(37, answered)
            assert producer.hear().code == OK
        spy.ask(28, signed("one-shop", {}))
        assert spy.hear().code == SYSTEM_ERROR
        assert not spy.asked


def test_a_client_id_belongs_to_the_account_that_has_it_in_a_group(broker: BrokerProcess) -> None:
    """S4: requests of the broker and queue locks go by client ids, in groups that the account may
    use. Elsewhere an id is taken from nobody: an account without rights shuts no client out.
    """
    who = {"clientID": "10.0.0.1@77"}
    reads = json.dumps({**who, "consumerDataSet": [{"groupName": "readers"}]}).encode()
    makes = json.dumps({**who, "producerDataSet": [{"groupName": "x"}]}).encode()
    asks = json.dumps({**who, "consumerDataSet": [{"groupName": "askers"}]}).encode()
    locks = {"clientId": "10.0.0.1@77", "consumerGroup": "readers", "mqSet": []}
    said = "client id 10.0.0.1@77 is that of an open connection of another account"
    with (
        RawConnection(broker.address) as squatter,
        RawConnection(broker.address) as holder,
        RawConnection(broker.address) as other,
    ):
        assert squatter.call(34, signed("nothing", {}, makes), makes).code == OK
        assert holder.call(34, signed("one-shop", {}, reads), reads).code == OK
        assert holder.call(38, signed("one-shop", {"consumerGroup": "readers"})).code == OK
        for code, body in ((34, reads), (41, json.dumps(locks).encode())):
            refused = other.call(code, signed("reads-all", {}, body), body)
            assert (refused.code, (refused.remark or "")[: len(said)]) == (16, said), code
        assert other.call(34, signed("reads-all", {}, asks), asks).code == OK
        with RawConnection(broker.address) as again:
            assert again.call(34, signed("one-shop", {}, reads), reads).code == OK
    with RawConnection(broker.address) as other:
        eventually(
            lambda: other.call(34, signed("reads-all", {}, reads), reads).code == OK,
            within_s=10,
            what="it is free when the other connections have ended",
        )


def test_a_reply_goes_to_the_account_that_had_the_client_id_first(broker: BrokerProcess) -> None:
    """S4: who registers as a producer with the id of another one gets none of its replies."""
    who = {"clientID": "10.0.0.1@78"}
    asks = json.dumps({**who, "producerDataSet": [{"groupName": "asks"}]}).encode()
    to = "DefaultCluster_REPLY_TOPIC"
    reply = send_fields(to, 0, i=properties_text(REPLY_TO_CLIENT="10.0.0.1@78"))
    with RawConnection(broker.address) as holder, RawConnection(broker.address) as other:
        assert holder.call(34, signed("the-payer", {}, asks), asks).code == OK
        assert other.call(34, signed("reads-all", {}, asks), asks).code == OK
        other.ask(325, signed("reads-all", reply, b"an answer"), b"an answer", oneway=True)
        pushed = holder.hear_any()
        assert (pushed.code, pushed.body) == (326, b"an answer")
        with RawConnection(broker.address) as again:
            assert again.call(34, signed("the-payer", {}, asks), asks).code == OK
            other.ask(325, signed("reads-all", reply, b"another"), b"another", oneway=True)
            assert again.hear_any().body == b"another", "its newest connection"


def test_no_property_of_a_message_leads_it_to_a_topic_without_rights(
    broker: BrokerProcess,
) -> None:
    """S4: what the broker notes in messages that wait (delays, timers, halves) is what it read."""

    def ends() -> list[int]:
        asked = [{"topic": "others", "queueId": queue_id} for queue_id in range(4)]
        answers = [call(broker, "the-admin", 30, one) for one in asked]
        return [int(answer.ext["offset"]) for answer in answers]

    def send(account: str, topic: str, **properties: str) -> RawAnswer:
        tran = 4 if "TRAN_MSG" in properties else 0
        text = properties.pop("first", "") + properties_text(**properties)
        now_ms = round(time.time() * 1_000)
        answer = call(broker, account, 310, send_fields(topic, 0, i=text, f=tran, g=now_ms), b"x")
        assert answer.code == OK, (properties, answer.remark)
        return answer

    now_ms = round(time.time() * 1_000)
    send("the-admin", "others", UNIQ_KEY="THEIR-TIMER", TIMER_DELIVER_MS=str(now_ms + 3_000))
    before = ends()
    there = {"REAL_TOPIC": "others", "REAL_QID": "0"}
    forged = properties_text(**there)
    slot = properties_text(TIMER_OUT_MS=str(now_ms + 1_000), **there)
    for waits in (
        {"DELAY": "1"},
        {"TIMER_DELAY_MS": "1000"},
        {"TIMER_DELIVER_MS": str(now_ms + 3_000), "TIMER_DEL_UNIQKEY": "THEIR-TIMER"},
        {
            "TIMER_DELIVER_MS": str(now_ms + 3_000),
            "TIMER_DEL_UNIQKEY": "others+THEIR-TIMER",
        },
        {"INNER_MULTI_DISPATCH": "others", "INNER_MULTI_QUEUE_OFFSET": "0"},
        {"RETRY_TOPIC": "others", "ORIGIN_GROUP": "readers"},
    ):
        for more in ({}, there, {"first": forged}, {"first": forged * 2, **there}, {"first": slot}):
            send("one-shop", "orders", **waits, **more)
    half = send("one-shop", "orders", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="H", **there)
    commit = {
        "producerGroup": "p",
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": offset_of(half),
        "commitOrRollback": 8,
        "msgId": "",
        "transactionId": "H",
        "topic": "orders",
    }
    assert call(broker, "one-shop", 37, commit).code == OK
    batch = batch_body({b"x": properties_text(**there)})
    assert call(broker, "one-shop", 320, send_fields("orders", 0, m=True), batch).code == OK
    send("the-admin", "others", TIMER_DELIVER_MS=str(now_ms + 4_500))
    expected = sum(before) + 2
    eventually(lambda: sum(ends()) >= expected, within_s=15, what="their timers are delivered")
    assert sum(ends()) == expected


def test_what_the_broker_keeps_for_itself_is_read_by_administrators(broker: BrokerProcess) -> None:
    """S4: halves, delayed messages and timers of all topics are beyond a default right."""
    topics = ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
    for topic in topics:
        query = {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}
        for code, fields in (
            (11, pull_fields("readers", topic, 0, 0)),
            (12, query),
            (33, {"topic": topic, "offset": 0}),
        ):
            refused = call(broker, "reads-all", code, fields)
            said = f"Need admin permission for request code={code}"
            assert said in (refused.remark or ""), (topic, refused.remark)
        assert EXCEPTION not in (call(broker, "the-admin", 12, query).remark or "")
    assert (
        call(broker, "reads-all", 11, pull_fields("readers", "prices", 0, 0)).code != SYSTEM_ERROR
    )


def test_a_wrong_clock_of_a_client_does_no_harm(broker: BrokerProcess) -> None:
    """No signature has a time; what a request says of the time decides nothing for others."""
    now_ms = round(time.time() * 1_000)
    wait = {"topic": "prices", "queueId": -1, "consumerGroup": "readers", "maxMsgNums": 1}
    wait |= {"invisibleTime": 10_000, "pollTime": 500, "initMode": 0, "expType": "TAG", "exp": "*"}
    for born_ms in (0, now_ms - 10 * YEAR_MS, now_ms + 10 * YEAR_MS):
        sent = call(broker, "one-shop", 310, send_fields("payments", 0, g=born_ms), b"x")
        assert sent.code == OK, sent.remark
        # Held for half a second by the clock of the broker: no client waits for ten years.
        popped = call(broker, "one-shop", 200050, wait | {"bornTime": born_ms})
        assert EXCEPTION not in (popped.remark or ""), popped.remark


def test_a_white_address_of_an_account_needs_no_signature(broker: BrokerProcess) -> None:
    assert call(broker, "trusted-here", 310, send_fields("others", 0), b"x", secret="?").code == OK


def test_s4_every_request_code_as_nobody_as_a_user_and_as_an_administrator(
    broker: BrokerProcess,
) -> None:
    """None of them serves who may not, and no answer and no log line has a secret."""
    silent = {37}  # Answers nothing when there is nothing to end.
    free = {35, 37, 105, 106}  # A user may leave, and look for topics and brokers.
    codes = set()
    for one in routed():
        codes.add(one.code)
        if one.code in silent:
            continue
        for account in (None, "nothing", "the-admin"):
            if account == "the-admin" and one.code in (215, 216):
                continue
            answer = call(
                broker, account, one.code, one.fields, one.body, to_name_server=one.to_name_server
            )
            refused = (answer.remark or "").startswith(EXCEPTION)
            text = f"{answer.remark}{dict(answer.ext)}".encode() + answer.body
            assert SECRET.encode() not in text, one.name
            if account is None:
                assert refused, one.name
                assert not answer.body
            elif account == "the-admin":
                assert not refused, (one.name, answer.remark)
            else:
                row = PERMISSIONS[one.code]
                only_reads = all(named.actions <= {"Get", "List"} for named in row.named) and not (
                    row.body or row.cluster or row.unnamed
                )
                assert refused or only_reads or one.code in free, (one.name, answer.remark)
    assert codes == PERMISSIONS.keys()
    assert SECRET not in broker.log.read_text(encoding="utf-8")


def test_the_audit_log_names_who_has_signed_and_its_lines_cannot_be_used_up(
    broker: BrokerProcess,
) -> None:
    """S13: what is refused has lines of its own, and nobody is named who was not there."""
    seen = len(list(events(broker.log.read_text())))
    fields = topic_fields("audited")
    for account, secret in (("the-admin", "?"), ("one-shop", SECRET), ("the-admin", SECRET)):
        call(broker, account, 17, fields, secret=secret)
    told = list(events(broker.log.read_text()))[seen:]
    lines = [(one["event"], one["user"], one["result"]) for one in told if "user" in one]
    assert lines == [
        ("admin.refused", "-", "SYSTEM_ERROR"),
        ("admin.refused", "one-shop", "SYSTEM_ERROR"),
        ("admin.changed", "the-admin", "SUCCESS"),
    ]


def test_a_broker_that_somebody_takes_out_of_the_routes_is_in_the_audit_log(
    broker: BrokerProcess,
) -> None:
    seen = len(list(events(broker.log.read_text())))
    fields = {
        "brokerName": "none-such",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
    for account in ("one-shop", "the-admin"):
        call(broker, account, 104, fields)
    told = list(events(broker.log.read_text()))[seen:]
    lines = [(one["event"], one["user"], one["request"]) for one in told if "user" in one]
    assert lines == [
        ("admin.refused", "one-shop", "UNREGISTER_BROKER"),
        ("admin.changed", "the-admin", "UNREGISTER_BROKER"),
    ]


def test_one_way_requests_are_checked_and_nothing_is_registered(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as client:
        client.ask(310, send_fields("orders", 0), b"lost", oneway=True)
        client.ask(
            15,
            {"consumerGroup": "readers", "topic": "prices", "queueId": 0, "commitOffset": 7},
            oneway=True,
        )
        client.ask(34, {}, beat("readers"), oneway=True)
        asked = {"consumerGroup": "readers", "topic": "prices", "queueId": 0}
        assert client.call(14, signed("one-shop", asked)).ext.get("offset") != "7"
        assert client.call(38, signed("one-shop", {"consumerGroup": "readers"})).code != OK


def test_s5_unknown_accounts_and_wrong_keys_have_the_same_answer(broker: BrokerProcess) -> None:
    fields = send_fields("orders", 0)
    wrong = call(broker, "one-shop", 310, fields, b"x", secret="another-one")
    unknown = call(broker, "two-shop", 310, fields, b"x")
    assert (wrong.remark or "").replace("one-shop", "two-shop") == unknown.remark
    assert wrong.code == unknown.code


def test_what_plain_acl_refuses_is_exit_code_5(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command sees no permission, although ACL 1.0 answers with the code of any failure."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "one-shop")
    monkeypatch.setenv("AEROBEE_SECRET_KEY", SECRET)
    for words in (["topic", "list"], ["produce", "prices", "x"], ["consume", "orders"]):
        assert exit_code_of(run_line, words) == REFUSED, words
    for topic, group in (("orders", "spies"), ("others", "readers")):
        words = ["consume", topic, "--group", group]
        assert exit_code_of(run_line, words) == REFUSED, words
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "another-one")
    assert exit_code_of(run_line, ["produce", "orders", "x"]) == REFUSED
    assert "Check signature failed" in capfd.readouterr().err


def test_the_requests_of_one_account_are_limited_over_all_of_its_connections(
    broker: BrokerProcess,
) -> None:
    def limit(per_s: int) -> None:
        body = f"maxRequestRateOfUser={per_s}".encode()
        assert call(broker, "the-admin", 25, {}, body).code == OK

    limit(PER_S)
    fields, served, began = signed("one-shop", send_fields("orders", 0), b"x"), 0, time.monotonic()
    for _ in range(3):
        # All at once: how many are served depends on the time that passes, and on nothing else.
        with RawConnection(broker.address, timeout_s=30) as client:
            for _ in range(40):
                client.ask(310, fields, b"x")
            answers = [client.hear() for _ in range(40)]
        refused = [answer for answer in answers if answer.code == SYSTEM_BUSY]
        assert (refused[0].remark or "").startswith("maxRequestRateOfUser is 2 per second")
        served += len(answers) - len(refused)
    assert PER_S <= served <= PER_S * (time.monotonic() - began + 2)
    assert call(broker, "the-admin", 105, {"topic": "orders"}, to_name_server=True).code == OK
    limit(0)


def test_the_bytes_that_one_account_sends_are_limited(broker: BrokerProcess) -> None:
    def limit(per_s: int) -> None:
        assert call(broker, "the-admin", 25, {}, b"maxByteRateOfUser=%d" % per_s).code == OK

    limit(1)
    with RawConnection(broker.address) as client:
        long, short = bytes(10_000), b"x"
        fields = signed("one-shop", send_fields("orders", 0), long)
        assert client.call(310, fields, long).code == OK
        refused = client.call(310, signed("one-shop", send_fields("orders", 0), short), short)
    assert refused.code == SYSTEM_BUSY
    assert (refused.remark or "").startswith("maxByteRateOfUser is 1 per second")
    limit(0)


def test_s6_wrong_signatures_slow_their_address_down_and_lock_nobody_out(
    broker: BrokerProcess,
) -> None:
    fields, elsewhere = send_fields("orders", 0), "127.0.0.6"
    wrong, good = signed("one-shop", fields, b"x", "guessed"), signed("one-shop", fields, b"x")
    with RawConnection(broker.address, source=elsewhere) as guesses:
        # Without waiting for answers: what is behind a held one is not looked at.
        began = time.monotonic()
        for _ in range(200):
            guesses.ask(310, wrong, b"x")
        for _ in range(GUESSES + 2):
            assert "Check signature failed" in (guesses.hear().remark or "")
        assert time.monotonic() - began > 0.9, "the last two had to wait for one sweep each"
        with RawConnection(broker.address, source=elsewhere) as client:
            assert client.call(310, good, b"x").code == OK, "at most a second later"
            began = time.monotonic()
            assert all(client.call(310, good, b"x").code == OK for _ in range(20))
            assert time.monotonic() - began < 10, "once it is known, no call waits for a sweep"
        began = time.monotonic()
        with RawConnection(broker.address, source="127.0.0.8") as other:
            assert all(other.call(310, good, b"x").code == OK for _ in range(20))
        assert time.monotonic() - began < 10, "nor does any of another address"


LOSING = """\
- {accessKey: is-removed, secretKey: a-secret-1, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: has-new-key, secretKey: a-secret-1, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: is-denied, secretKey: a-secret-1, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: no-default, secretKey: a-secret-1, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: no-group, secretKey: a-secret-1, defaultTopicPerm: SUB, groupPerms: [readers=SUB]}
- {accessKey: no-admin, secretKey: a-secret-1, admin: true}
- {accessKey: no-address, secretKey: a-secret-1, whiteRemoteAddress: 127.0.0.*}
- {accessKey: has-more, secretKey: a-secret-1, topicPerms: [prices=SUB], groupPerms: [readers=SUB]}
"""
LOST = """\
- {accessKey: has-new-key, secretKey: a-secret-2, defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: is-denied, secretKey: a-secret-1, defaultTopicPerm: SUB, defaultGroupPerm: SUB,
   topicPerms: [prices=DENY]}
- {accessKey: no-default, secretKey: a-secret-1, defaultTopicPerm: PUB, defaultGroupPerm: SUB}
- {accessKey: no-group, secretKey: a-secret-1, defaultTopicPerm: SUB}
- {accessKey: no-admin, secretKey: a-secret-1, topicPerms: [others=PUB|SUB]}
- {accessKey: no-address, secretKey: a-secret-1}
- {accessKey: has-more, secretKey: a-secret-1, defaultTopicPerm: PUB|SUB, groupPerms: [readers=SUB]}
"""


def test_a_held_pull_does_not_outlive_what_the_file_takes_away(broker: BrokerProcess) -> None:
    """S4: a message that comes after the change goes to nobody who may not have it any more."""
    path = broker.data.parent / "plain_acl.yml"
    losing = [line.split()[2].rstrip(",") for line in LOSING.splitlines()]
    pull = pull_fields("readers", "prices", 0, 0, sysFlag=6)

    def held(account: str | None, source: str = "127.0.0.1") -> RawConnection:
        connection = opened.enter_context(RawConnection(broker.address, source=source))
        connection.ask(11, signed(account, pull, secret="a-secret-1"))
        asked = {"topic": "prices", "queueId": 0}
        assert connection.call(31, signed(account, asked, secret="a-secret-1")).code == OK
        return connection

    with ExitStack() as opened:
        opened.callback(write_acl, path)
        write_acl(path, ACL.replace("10.9.9.*", "127.0.0.99") + LOSING)
        eventually(lambda: reloads(broker) == 1, within_s=10, what="the accounts")
        *ended, stays = [held(None, "127.0.0.99"), *map(held, losing)]
        write_acl(path, ACL + LOST)
        eventually(lambda: reloads(broker) == 2, within_s=10, what="the change")
        assert call(broker, "the-admin", 310, send_fields("prices", 0), b"dear").code == OK
        for name, connection in zip(["a white address", *losing[:-1]], ended, strict=True):
            with pytest.raises(Closed):
                pytest.fail(f"{name} got {connection.hear()}")
        assert b"dear" in stays.hear().body


def reloads(broker: BrokerProcess) -> int:
    """How often the accounts were read again."""
    told = events(broker.log.read_text())
    return sum(one["event"] == "access.reloaded" for one in told)


def test_s6_long_bodies_are_checked_like_short_ones(broker: BrokerProcess) -> None:
    """They are hashed in turns; what is behind them on the connection waits for its turn."""
    body, fields, elsewhere = bytes(6 << 20), send_fields("others", 0), "127.0.0.16"
    with RawConnection(broker.address, timeout_s=30, source=elsewhere) as client:
        for account, secret in (("the-admin", SECRET), ("one-shop", SECRET), ("one-shop", "?")):
            client.ask(310, signed(account, fields, body, secret), body)
        client.ask(310, fields, body)
        client.ask(17, signed("one-shop", topic_fields("padded"), body), body)
        client.ask(31, signed("the-admin", {"topic": "others", "queueId": 0}))
        remarks = [client.hear().remark or "" for _ in range(6)]
        assert "msg body length limit" in remarks[0]
        assert "No default permission for others" in remarks[1]
        assert "Check signature failed" in remarks[2]
        assert "No accessKey is configured" in remarks[3]
        assert "Need admin permission for request code=17" in remarks[4]
        assert not remarks[5]
        wrong = signed("one-shop", fields, body, "guessed")
        began = time.monotonic()
        for _ in range(GUESSES + 1):
            client.ask(310, wrong, body)
        assert all("Check" in (client.hear().remark or "") for _ in range(GUESSES + 1))
        assert time.monotonic() - began > 0.9, "the last ones had to wait for a sweep"
    refused = [one for one in events(broker.log.read_text()) if one["event"] == "admin.refused"]
    assert "topic=padded" in str(refused[-1]["what"])


def test_changes_count_within_a_second_and_mistakes_do_not(broker: BrokerProcess) -> None:
    path = broker.data.parent / "plain_acl.yml"
    fields = send_fields("others", 0)
    try:
        write_acl(path, ACL.replace("payments=PUB", "others=PUB"))
        eventually(
            lambda: call(broker, "one-shop", 310, fields, b"x").code == OK,
            within_s=10,
            what="the new right",
        )
        write_acl(path, ACL + "accounts: []\n")
        broker.child.signal(signal.SIGHUP)
        eventually(
            lambda: any(
                one["event"] == "access.reload_refused"
                and "accounts: is there twice" in str(one["reason"])
                for one in events(broker.log.read_text())
            ),
            within_s=10,
            what="the mistake is named",
        )
        assert call(broker, "one-shop", 310, fields, b"x").code == OK
        (path.parent / "acl").mkdir()
        write_acl(path)
        write_acl(
            path.parent / "acl" / "more.yaml",
            ACL.replace("one-shop", "two-shop")
            .replace("the-admin", "admin-2")
            .replace("nothing", "nothing-2")
            .replace("the-payer", "payer-2")
            .replace("reads-all", "reads-all-2")
            .replace("trusted", "trusts"),
        )
        eventually(
            lambda: call(broker, "two-shop", 310, send_fields("orders", 0), b"x").code == OK,
            within_s=10,
            what="accounts of a second file",
        )
        assert call(broker, "one-shop", 310, fields, b"x").code == SYSTEM_ERROR
    finally:
        write_acl(path)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (None, 0o600, "plain_acl.yml: aclEnable and migrateAuthFromV1Enabled ask for"),
        ("accounts:\n- accessKey: x\n", 0o600, "plain_acl.yml:2: accessKey: has at least 7"),
        (ACL, 0o620, "S17: plain_acl.yml: others than its owner may change it"),
        (ACL + ACL.replace("globalWhite", "x-"), 0o600, "accounts: is there twice"),
    ],
)
def test_a_start_with_a_wrong_file_names_it(
    tmp_path: Path, text: str | None, mode: int, said: str
) -> None:
    path = tmp_path / "plain_acl.yml"
    if text is not None:
        path.write_text(text)
        os.chmod(path, mode)
    settings = {"aclEnable": True, "aclConfigDir": tmp_path}
    broker = BrokerProcess(data=tmp_path / "data", settings=settings)
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert said.removeprefix("S17: ") in broker.log.read_text(), refused.value


def test_s13_no_text_of_a_request_forges_a_line_and_no_line_is_long(broker: BrokerProcess) -> None:
    """Each text field of each request, names within bodies, and accounts and their secrets."""
    forged = 'evil\n{"event":"forged"}\r\x1b[2J\x85\u2028\x7f'
    long = "long" * 2_500
    with (
        RawConnection(broker.address, timeout_s=30) as ours,
        RawConnection(broker.namesrv_address, timeout_s=30) as names,
        RawConnection(broker.address, timeout_s=30, source="127.0.0.13") as guesses,
    ):
        for one in routed():
            to = names if one.to_name_server else ours
            fields = [field for field in msgspec.structs.fields(one.kind) if takes_text(field.type)]
            for text in (forged, long):
                bad = {**one.fields, **{field.encode_name: text for field in fields}}
                to.ask(one.code, signed("the-admin", bad, one.body), one.body, oneway=True)
        for text in (forged, long):
            for code, body in (
                (34, json.dumps({"clientID": text, "producerDataSet": [{"groupName": text}]})),
                (34, beat(text, topic=text).decode()),
                (25, f"brokerName={text}"),
                (25, f"{text}=1"),
                (25, f"initAuthenticationUser={SECRET}"),
            ):
                answer = ours.call(code, signed("the-admin", {}, body.encode()), body.encode())
                assert SECRET not in (answer.remark or "")
            assert guesses.call(34, signed(text, {}, beat("readers"), text), beat("readers")).code
        assert names.call(105, signed("the-admin", {"topic": "prices"})).code == OK
    log = broker.log.read_text()
    assert "evil" in log, "nothing of it was logged"
    assert not {
        char for char in log if not (char.isascii() and (char.isprintable() or char == "\n"))
    }
    assert max(map(len, log.splitlines())) <= LINE_MAX
    assert "forged" not in {event["event"] for event in events(log)}
    assert SECRET not in log
    assert "Signature" not in log


def takes_text(kind: Any) -> bool:
    return kind is str or str in getattr(kind, "__args__", ())


def test_connections_without_an_account_keep_nobody_out_and_end_in_time(tmp_path: Path) -> None:
    """Silent ones, half a frame, and a trickle of requests without signature, on both ports."""
    write_acl(tmp_path / "plain_acl.yml")
    settings = {"aclEnable": True, "aclConfigDir": tmp_path, "autoCreateTopicEnable": False}
    settings |= {"maxConnections": 8, "firstRequestTimeout": 1_500}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker, ExitStack() as stack:
        own = stack.enter_context(RawConnection(broker.address))
        assert own.call(26, signed("the-admin", {}, b"")).code == OK
        ports = (broker.address, broker.namesrv_address)
        crowd = [stack.enter_context(RawConnection(ports[at % 2])) for at in range(12)]
        crowd[-1].send_bytes(request_frame(26, 1, {}, b"")[:-1])
        for to_name_server in (False, True):
            code = 106 if to_name_server else 26
            answer = call(broker, "the-admin", code, to_name_server=to_name_server)
            assert answer.code == OK, "among a crowd that has taken all places"

        def ended() -> bool:
            # It asks and asks, and no request of it is let pass.
            with suppress(Closed, OSError):
                crowd[-2].call(26, {})
                return False
            return True

        eventually(ended, within_s=20, what="a trickle of unsigned requests has an end")
        for silent in crowd[:-2]:
            silent.hear_close()
        crowd[-1].hear_close()
        assert own.call(26, signed("the-admin", {}, b"")).code == OK, "it has shown its account"
        cut = {
            labels["reason"]: value
            for name, labels, value in metrics_of(broker)
            if name == "aerobee_connections_cut_total"
        }
        assert cut["late"] > 0 < cut["displaced"]
        happened = {event["event"] for event in events(broker.child.errors())}
        assert {"connection.displaced", "connection.late"} <= happened
