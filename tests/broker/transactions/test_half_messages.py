"""What a half is, what the check does with it, and both forms of op records."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.transactions.half_messages import (
    Half,
    Rules,
    Step,
    half_of,
    is_half,
    late_end,
    next_step,
    op_offsets,
    put_again,
)
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft, Record
from aerobee.store.format.system_names import HALF_TOPIC

NOW = 1_700_000_000_000
HOST = bytes([127, 0, 0, 1, 0, 0, 195, 80])
RULES = Rules(end_offset=8, timeout_ms=6_000, checks_max=15, reserved_ms=72 * 3_600_000)


def half(born: int = NOW - 10_000, at: int = 7, **properties: str) -> Half:
    given = {"REAL_TOPIC": "t", "REAL_QID": "3", "PGROUP": "p", "UNIQ_KEY": "K", **properties}
    text = encode(given).encode()
    place = (300, 0, 0, 0, 0, at, 4096, 0, born, HOST, NOW, HOST, 0, 0)
    return Half.of(Record(*place, b"pay", HALF_TOPIC, text))


@pytest.mark.parametrize(
    ("given", "step"),
    [
        ({}, Step.CHECK),
        ({"born": NOW - 6_000}, Step.STOP),
        ({"born": NOW - 6_001}, Step.CHECK),
        ({"born": NOW}, Step.STOP),
        ({"born": NOW + 1}, Step.CHECK),
        ({"at": 8}, Step.STOP),
        ({"at": 8, "TRANSACTION_CHECK_TIMES": "15"}, Step.GIVE_UP),
        ({"TRANSACTION_CHECK_TIMES": "14"}, Step.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "many"}, Step.CHECK),
        ({"born": NOW - 72 * 3_600_000}, Step.CHECK),
        ({"born": NOW - 72 * 3_600_000 - 1}, Step.GIVE_UP),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Step.KEEP),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}, Step.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60", "born": NOW + 5}, Step.KEEP),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Step.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon", "born": NOW - 6_000}, Step.KEEP),
        ({"REAL_TOPIC": ""}, Step.GIVE_UP),
    ],
    ids=str,
)
def test_the_first_line_of_the_table_that_fits_decides(given: dict[str, Any], step: Step) -> None:
    one = half(**given)
    assert next_step(one, NOW, RULES, NOW - one.record.born_timestamp) is step


def test_each_question_counts_and_a_wait_does_not() -> None:
    asked = decode(put_again(half(), Step.CHECK))
    assert asked["TRANSACTION_CHECK_TIMES"] == "1"
    again = decode(put_again(half(TRANSACTION_CHECK_TIMES="1"), Step.CHECK))
    assert again["TRANSACTION_CHECK_TIMES"] == "2"
    waited = decode(put_again(half(), Step.KEEP))
    assert waited["TRAN_PREPARED_QUEUE_OFFSET"] == "7"
    assert "TRANSACTION_CHECK_TIMES" not in waited
    longer = decode(put_again(half(TRAN_PREPARED_QUEUE_OFFSET="2"), Step.KEEP))
    assert longer["TRAN_PREPARED_QUEUE_OFFSET"] == "2", "an op record may name the first place"


@pytest.mark.parametrize("commit", [True, False])
def test_the_late_end_of_a_packed_half_has_nothing_to_unpack(commit: bool) -> None:
    packed = half()._replace(record=half().record._replace(sys_flag=0x101))
    end = late_end(packed, commit=commit)
    assert (end.body, end.sys_flag & 0x1) == (b"", 0)


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"12", [12]),
        (b"12,", [12]),
        (b"12,15,16,", [12, 15, 16]),
        (b" 3 , 4", [3, 4]),
        (b"", []),
        (b",,", []),
        (b"x,5,-1,9999999999999999999999,\xff", [5]),
    ],
)
def test_op_records_are_read_in_both_forms_and_rubbish_is_passed_over(
    body: bytes, offsets: list[int]
) -> None:
    assert op_offsets(body) == op_offsets(memoryview(body)) == offsets


def test_a_half_keeps_its_target_and_is_an_ordinary_record() -> None:
    draft = MessageDraft("t", 3, b"pay", b"", HOST, HOST, sys_flag=0x4 | 0x1)
    half_of(draft, {"TRAN_MSG": "true", "UNIQ_KEY": "K", "DELAY": "3"})
    assert (draft.topic, draft.queue_id, draft.sys_flag) == (HALF_TOPIC, 0, 0x1)
    assert decode(draft.properties) == {
        "TRAN_MSG": "true",
        "UNIQ_KEY": "K",
        "DELAY": "3",
        "REAL_TOPIC": "t",
        "REAL_QID": "3",
        "__transactionId__": "K",
    }


@pytest.mark.parametrize(
    ("properties", "reconsumed", "asks"),
    [
        ({"TRAN_MSG": "true"}, 0, True),
        ({"TRAN_MSG": "TRUE"}, 3, True),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 0, True),
        ({"TRAN_MSG": "true", "DELAY": "3"}, 1, False),
        ({"TRAN_MSG": "true", "DELAY": "x"}, 1, True),
        ({"TRAN_MSG": "false"}, 0, False),
        ({}, 0, False),
    ],
    ids=str,
)
def test_the_property_decides_except_on_what_is_sent_for_a_later_try(
    properties: dict[str, str], reconsumed: int, asks: bool
) -> None:
    assert is_half(properties, reconsumed) is asks
