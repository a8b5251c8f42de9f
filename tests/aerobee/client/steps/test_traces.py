"""Records of the message trace: what Java's reader finds in them, and what is left out."""

import pytest

from aerobee.client.message import Message, ReceivedMessage
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.messages import UniqIds, received
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.traces import WAITING_MAX, Trace, Traces, record
from aerobee.client.steps.tracing import traced
from aerobee.client.transaction import TransactionState
from aerobee.errors import MessageIllegalError
from aerobee.hooks import ConsumeContext, ConsumeOutcome
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessageV2
from aerobee.remoting.wire.headers.transaction import EndTransaction
from aerobee.store.format import properties
from aerobee.store.format import record as message_record
from tests.aerobee.client.steps.stage import Stage, answer, route


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", queues=1))
    stage.answers(SendMessageV2, answer(msgId="OID", queueId=0, queueOffset=7))
    stage.answers(SendBatchMessage, answer(msgId="O1,O2", queueId=0, queueOffset=7))
    return stage


@pytest.fixture
def sender(stage: Stage) -> Sender:
    config = ProducerConfig(group="g", trace=True)
    return Sender(stage.instance, config, UniqIds(bytes(4), 1, 1))


def traces_of(stage: Stage) -> Traces:
    return Traces("g", stage.instance, "Traces", UniqIds(bytes(4), 1, 1))


def fields(trace: Trace) -> list[str]:
    assert trace.text.endswith("\x02")
    return trace.text[:-1].split("\x01")


def test_fields_are_those_of_javas_writer() -> None:
    # Written by a Java client of 5.3.
    golden = "Pub|1700000000000|DefaultRegion|pg|T|MID|null|k1 k2|10.0.0.1:10911|5|3|0|OID|true$"
    place = ("DefaultRegion", "pg", "T", "MID", None, "k1 k2", "10.0.0.1:10911")
    written = record("Pub", 1_700_000_000_000, *place, 5, 3, 0, "OID", True)
    assert written == golden.replace("|", "\x01").replace("$", "\x02")


def test_a_send_leaves_a_record_and_so_does_one_that_failed(stage: Stage, sender: Sender) -> None:
    tracing = traced(sender)
    assert tracing is not None
    message = Message("T", b"hello", tag="A", keys=["k1", "k2"])
    result = stage.perform(sender.send(message, None, None, False))
    stage.answers(SendMessageV2, answer(13, remark="illegal"))
    with pytest.raises(MessageIllegalError):
        stage.perform(sender.send(Message("T", b"x"), None, None, False))
    good, bad = tracing.traces.waiting
    assert fields(good)[2:] == [
        *("DefaultRegion", "g", "T", result.message_id, "A", "k1 k2", "broker-a:10911"),
        *("5", "0", "0", "OID", "true"),
    ]
    assert good.keys == [result.message_id, "k1", "k2"]
    assert fields(bad)[6:9] == ["null", "null", "null"]
    assert fields(bad)[-2:] == ["null", "false"]


def test_a_batch_is_one_record_with_all_ids(stage: Stage, sender: Sender) -> None:
    tracing = traced(sender)
    assert tracing is not None
    messages = [Message("T", b"a", keys=["k"]), Message("T", b"bc")]
    results = stage.perform(sender.send_batch(messages, None))
    (one,) = tracing.traces.waiting
    assert fields(one)[5] == ",".join(result.message_id for result in results)
    assert fields(one)[9] == "3"


def test_a_broker_that_wants_no_trace_gets_none(stage: Stage, sender: Sender) -> None:
    tracing = traced(sender)
    assert tracing is not None
    said = {"msgId": "OID", "queueId": 0, "queueOffset": 7, "TRACE_ON": "false"}
    stage.answers(SendMessageV2, answer(0, b"", None, **said))  # type: ignore[arg-type]  # ext by name
    stage.perform(sender.send(Message("T", b"x"), None, None, False))
    assert not tracing.traces.waiting


def test_the_trace_has_a_bound_and_a_send_never_waits_for_it(stage: Stage) -> None:
    traces = traces_of(stage)
    for _ in range(WAITING_MAX + 3):
        traces.add(Trace("T", "x", ()))
    assert len(traces.waiting) == WAITING_MAX
    assert traces.lost == 3


def test_records_leave_together_and_are_never_traced(stage: Stage, sender: Sender) -> None:
    tracing = traced(sender)
    assert tracing is not None
    for n in range(25):
        tracing.traces.add(Trace("T" if n < 22 else "U", f"{n};", [f"k{n}"]))
    assert tracing.traces.wanted.is_set
    stage.perform(tracing.close())
    sent = stage.asked(SendMessageV2)
    assert [ask.body.count(b";") for ask in sent] == [20, 2, 3]
    header = sent[0].header.ext()
    assert header["b"] == "RMQ_SYS_TRACE_TOPIC"
    assert header["a"] == "_INNER_TRACE_PRODUCER-g-PRODUCE"
    assert "KEYS\x01k0 k1 k2" in header["i"]
    assert not tracing.traces.waiting


def test_a_trace_that_cannot_be_sent_is_lost_and_nothing_else(stage: Stage, sender: Sender) -> None:
    tracing = traced(sender)
    assert tracing is not None
    stage.answers(SendMessageV2, answer(16, remark="no"))
    tracing.traces.add(Trace("T", "x", ()))
    stage.perform(tracing.close())
    assert not tracing.traces.waiting


def test_ends_of_transactions_and_recalls_are_told(stage: Stage) -> None:
    traces = traces_of(stage)
    end = EndTransaction(
        topic="T",
        producer_group="g",
        tran_state_table_offset=1,
        commit_log_offset=2,
        commit_or_rollback=8,
        from_transaction_check=True,
        msg_id="ID",
        transaction_id="TX",
    )
    traces.ended(Message("T", b"x", keys=["k"]), end, "b:1", TransactionState.COMMIT)
    traces.recalled("T", "ID")
    ended, recalled = map(fields, traces.waiting)
    assert ended[:1] + ended[2:] == [
        *("EndTransaction", "DefaultRegion", "g", "T", "ID", "null", "k", "b:1", "2", "TX"),
        *("COMMIT_MESSAGE", "true"),
    ]
    assert recalled[:1] + recalled[2:] == ["Recall", "DefaultRegion", "g", "T", "ID", "true"]


def delivered(topic: str = "T", **named: str) -> ReceivedMessage:
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    draft = message_record.MessageDraft(
        topic=topic,
        queue_id=1,
        body=b"x",
        properties=properties.encode({"UNIQ_KEY": "ID", "KEYS": "k1 k2", **named}).encode(),
        born_host=host,
        store_host=host,
    )
    (message,) = received(message_record.encode(draft, 5, 99, 1_700_000_000_001), "b", None)
    return message


def test_a_delivery_is_told_before_and_after(stage: Stage) -> None:
    traces = traces_of(stage)
    message = delivered(MSG_REGION="R")
    for outcome, failed, said in (
        (ConsumeOutcome.SUCCESS, (), ("true", "0")),
        (ConsumeOutcome.EXCEPTION, (message,), ("false", "2")),
        (ConsumeOutcome.FAILED, (), ("true", "0")),
    ):
        consume = ConsumeContext("g", [message])
        traces.before_consume(consume)
        stage.now_s += 0.012
        consume.outcome, consume.failed = outcome, failed
        traces.after_consume(consume)
        before, after = (fields(traces.waiting.popleft()) for _ in range(2))
        request_id = before[4]
        assert len(request_id) == 32
        assert before[:1] + before[2:] == ["SubBefore", "R", "g", request_id, "ID", "0", "k1 k2"]
        assert after[:5] == ["SubAfter", request_id, "ID", after[3], said[0]]
        assert int(after[3]) in {11, 12}
        assert after[5:7] == ["k1 k2", said[1]]
        assert after[8:] == ["g"]


def test_nothing_is_told_of_traces_and_of_what_is_not_to_be_traced(stage: Stage) -> None:
    traces = traces_of(stage)
    consume = ConsumeContext("g", [delivered("Traces"), delivered(TRACE_ON="false")])
    traces.before_consume(consume)
    traces.after_consume(consume)
    assert not traces.waiting
