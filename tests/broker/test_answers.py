"""Every status has its answer, and every refusal keeps what it has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker import errors
from aerobee.broker.answers import FOUND, PULL_CODES, PUT_ANSWERS, STORED, put_refused, refusal
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.pull import PullMessageRefused
from aerobee.store.errors import StoreError
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.flags import Flag
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetStatus, PutStatus
from tests.kit.store_model import small_config

if TYPE_CHECKING:
    from pathlib import Path


def test_every_put_status_has_an_answer() -> None:
    assert set(PUT_ANSWERS) == set(PutStatus)


def test_every_get_status_has_an_answer() -> None:
    assert set(PULL_CODES) == set(GetStatus)
    pulled = {Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY}
    assert set(PULL_CODES.values()) == pulled | {Code.PULL_OFFSET_MOVED}
    assert [status for status, code in PULL_CODES.items() if code == 0] == [FOUND]


def test_the_remark_of_a_put_that_was_refused_is_filled_in(tmp_path: Path) -> None:
    store = MessageStore(small_config(tmp_path), disk=Disk(), clock=SystemClock())
    store.flags.set(Flag.DISK_FULL, "the disk is full")
    for status in set(PutStatus) - STORED:
        assert "{" not in put_refused(status, store).remark
    refused = put_refused(PutStatus.SERVICE_NOT_AVAILABLE, store)
    assert refused.remark.endswith("the disk is full")


@pytest.mark.parametrize("status", PutStatus)
def test_what_is_stored_says_nothing_and_what_is_not_says_why(status: PutStatus) -> None:
    code, remark = PUT_ANSWERS[status]
    assert type(code) is int
    assert (remark is None) is (status in STORED)
    if remark is not None:
        assert remark.format(cause="c", max_message_size_bytes=7).isascii()
    assert (code == 0) is (status is PutStatus.PUT_OK)


def test_a_stored_message_is_told_with_codes_that_clients_take_for_sent() -> None:
    codes = {PUT_ANSWERS[status][0] for status in STORED}
    assert codes == {Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Refusal(Code.SYSTEM_BUSY, "why"), Code.SYSTEM_BUSY),
        (errors.NameIllegal("why"), Code.INVALID_PARAMETER),
        (errors.TopicNotExist("why"), Code.TOPIC_NOT_EXIST),
        (errors.GroupNotExist("why"), Code.SUBSCRIPTION_GROUP_NOT_EXIST),
        (errors.NoPermission("why"), Code.NO_PERMISSION),
        (errors.AttributesIllegal("why"), Code.SYSTEM_ERROR),
        (errors.LimitReached("why", 3), Code.SYSTEM_ERROR),
        (StoreError("why"), Code.SYSTEM_ERROR),
    ],
)
def test_an_error_that_means_something_becomes_an_answer(error: Exception, code: int) -> None:
    answer = refusal(error)
    assert answer is not None
    assert answer.code == code
    assert "why" in str(answer.remark)
    assert answer.header is None


def test_a_refusal_keeps_its_fields() -> None:
    error = errors.NoPermission("no")
    error.header = PullMessageRefused(forbidden_type=2)
    answer = refusal(error)
    assert answer is not None
    assert answer.header is error.header


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(5, "disk"), KeyError("x")])
def test_a_fault_of_ours_is_no_refusal(error: Exception) -> None:
    assert refusal(error) is None
