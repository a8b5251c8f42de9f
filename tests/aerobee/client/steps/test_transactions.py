"""Transactions as a play: the half, its end, and the questions of brokers."""

import json

import pytest

from aerobee.client.message import Message
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.messages import UniqIds
from aerobee.client.steps.questions import CHECKS_MAX
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.transactions import Transactions
from aerobee.client.transaction import TransactionState, state_of
from aerobee.errors import ConfigurationError, ConnectError, TransactionError
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import Heartbeat, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from aerobee.remoting.wire.headers.send import SendMessageV2
from aerobee.remoting.wire.headers.transaction import EndTransaction
from aerobee.store.format import properties, record
from tests.aerobee.client.steps.stage import Stage, answer, moved, route

LOG_OFFSET = 0x1234


def offset_id(offset: int = LOG_OFFSET) -> str:
    return bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]).hex().upper() + f"{offset:016X}"


def stored(ask: Ask, code: int = 0) -> Command:
    header = ask.header
    assert isinstance(header, SendMessageV2)
    return answer(
        code, msgId=offset_id(), queueId=header.queue_id, queueOffset=7, transactionId="TX"
    )


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", queues=1))
    stage.answers(SendMessageV2, stored)
    stage.answers(EndTransaction, answer())
    stage.answers(Heartbeat, answer())
    stage.answers(UnregisterClient, answer())
    return stage


@pytest.fixture
def transactions(stage: Stage) -> Transactions:
    config = ProducerConfig(group="g")
    made = Transactions(Sender(stage.instance, config, UniqIds(bytes(4), 1, 1)))
    made.begin()
    return made


def test_a_half_says_what_it_is_and_ends_where_it_lies(
    stage: Stage, transactions: Transactions
) -> None:
    half = stage.perform(transactions.open(Message("T", b"x", tag="A"), None))
    (ask,) = stage.asked(SendMessageV2)
    header = ask.header
    assert isinstance(header, SendMessageV2)
    assert header.sys_flag == 4
    named = properties.decode(header.properties or "")
    assert (named["TRAN_MSG"], named["PGROUP"], named["TAGS"]) == ("true", "g", "A")
    assert half.transaction_id == "TX"
    stage.perform(transactions.end(half, TransactionState.COMMIT))
    (end,) = stage.asked(EndTransaction)
    assert end.oneway
    assert end.address == ask.address
    assert end.header.ext() == {
        "topic": "T",
        "producerGroup": "g",
        "tranStateTableOffset": "7",
        "commitLogOffset": str(LOG_OFFSET),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": half.result.message_id,
        "transactionId": "TX",
    }


def test_a_half_that_is_not_safe_is_rolled_back_and_nothing_is_run(
    stage: Stage, transactions: Transactions
) -> None:
    stage.answers(SendMessageV2, lambda ask: stored(ask, 10))
    with pytest.raises(TransactionError, match="FLUSH_DISK_TIMEOUT only; it is rolled back"):
        stage.perform(transactions.open(Message("T", b"x"), None))
    (end,) = stage.asked(EndTransaction)
    assert end.header.ext()["commitOrRollback"] == "12"


@pytest.mark.parametrize(
    "message", [Message("T", b"x", delay_level=1), Message("T", b"x", delay=1)]
)
def test_a_half_has_no_delay(stage: Stage, transactions: Transactions, message: Message) -> None:
    with pytest.raises(ConfigurationError, match="has no delay"):
        stage.perform(transactions.open(message, None))
    assert stage.asked(SendMessageV2) == []


def test_a_half_has_no_priority(stage: Stage, transactions: Transactions) -> None:
    with pytest.raises(ConfigurationError, match="has no priority"):
        stage.perform(transactions.open(Message("T", b"x", priority=1), None))
    assert stage.asked(SendMessageV2) == []


def test_an_end_that_cannot_be_told_is_no_error(stage: Stage, transactions: Transactions) -> None:
    half = stage.perform(transactions.open(Message("T", b"x"), None))
    stage.answers(EndTransaction, ConnectError("gone"))
    stage.perform(transactions.end(half, TransactionState.ROLLBACK))
    assert half.state is TransactionState.ROLLBACK


def test_an_end_finds_a_broker_that_has_moved(stage: Stage, transactions: Transactions) -> None:
    half = stage.perform(transactions.open(Message("T", b"x"), None))
    stage.answers(GetRouteInfo, moved())
    stage.answers(EndTransaction, ConnectError("refused"), answer())
    stage.perform(transactions.end(half, TransactionState.COMMIT))
    asks = stage.asked(EndTransaction)
    assert [ask.address for ask in asks] == ["broker-a:10911", "new-host:10911"]
    assert asks[0].header == asks[1].header


def question(group: str = "g", body: bytes | None = None) -> Command:
    named = properties.encode({"PGROUP": group, "UNIQ_KEY": "ID"})
    ext = {"commitLogOffset": "99", "tranStateTableOffset": "5", "transactionId": "TX"}
    if body is None:
        host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
        draft = record.MessageDraft(
            topic="T",
            queue_id=1,
            body=b"half",
            properties=named.encode(),
            born_host=host,
            store_host=host,
        )
        body = record.encode(draft, 5, 99, 1_700_000_000_001)
    return Command(RequestCode.CHECK_TRANSACTION_STATE, ext=ext, body=body, flag=2)


def test_a_question_is_answered_to_who_asked(stage: Stage, transactions: Transactions) -> None:
    assert stage.instance.serve(question(), "broker-z:1") is None
    check = transactions.checks.take()
    assert check is not None
    assert (check.message.body, check.message.topic) == (b"half", "T")
    assert transactions.checks.take() is None
    stage.perform(transactions.answer(check, TransactionState.ROLLBACK))
    (end,) = stage.asked(EndTransaction)
    assert (end.address, end.oneway) == ("broker-z:1", True)
    said = end.header.ext()
    assert (said["commitLogOffset"], said["tranStateTableOffset"]) == ("99", "5")
    assert (said["commitOrRollback"], said["fromTransactionCheck"]) == ("12", "true")
    assert (said["msgId"], said["transactionId"]) == ("ID", "TX")


@pytest.mark.parametrize(
    "asked", [question("other"), question(body=b""), question(body=b"\0\0\0\x09nonsense")]
)
def test_what_cannot_be_answered_here_ends_nothing(
    stage: Stage, transactions: Transactions, asked: Command
) -> None:
    assert stage.instance.serve(asked, "broker-z:1") is None
    assert transactions.checks.take() is None


def test_more_questions_than_there_is_room_for_are_left_to_the_next_round(
    stage: Stage, transactions: Transactions, caplog: pytest.LogCaptureFixture
) -> None:
    for taken in (0, 1, CHECKS_MAX // 2 + 1):
        for _ in range(taken):
            transactions.checks.take()
        for _ in range(CHECKS_MAX + 5):
            stage.instance.serve(question(), "broker-z:1")
        assert len(transactions.checks.waiting) == CHECKS_MAX
    assert len(caplog.messages) == 2, "once, and once more after half of them were answered"


def test_brokers_that_no_route_names_know_of_the_producer_too(
    stage: Stage, transactions: Transactions
) -> None:
    names = {
        name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{name}:1", "1": "s:1"}}
        for name in ("x", "y")
    }
    body = json.dumps({"brokerAddrTable": names, "clusterAddrTable": {}}).encode()
    stage.answers(GetBrokerClusterInfo, answer(body=body))
    stage.perform(stage.instance.greet(1.0))
    assert stage.instance.heartbeat_now.is_set
    stage.perform(stage.instance.send_heartbeats())
    assert [ask.address for ask in stage.asked(Heartbeat)] == ["x:1", "y:1"]


def test_a_producer_that_left_is_asked_nothing(stage: Stage, transactions: Transactions) -> None:
    stage.perform(transactions.close())
    stage.instance.serve(question(), "broker-z:1")
    assert transactions.checks.take() is None
    assert transactions.checks.closed


def test_only_a_state_decides() -> None:
    assert state_of(TransactionState.COMMIT) is TransactionState.COMMIT
    for said in (None, True, "COMMIT", 8):
        assert state_of(said) is TransactionState.UNKNOWN
