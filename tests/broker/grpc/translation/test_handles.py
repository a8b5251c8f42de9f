"""Receipt handles of the 5.x clients."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.grpc.translation.handles import (
    Handle,
    check_current,
    check_own,
    read_handle,
)
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.pop.pop_records import ORDER_REVIVE_QID, Receipt
from aerobee.remoting.grpc.enums import Code

RECEIPT = Receipt(10, 1_000_000, 60_000, 3, "0", "broker-a", 2, 12)
HANDLE = Handle(RECEIPT, 4_711)


def test_a_handle_has_the_nine_parts_that_a_proxy_gives() -> None:
    assert HANDLE.text() == "10 1000000 60000 3 0 broker-a 2 12 4711"
    assert read_handle(HANDLE.text()) == HANDLE


def test_a_handle_names_the_topic_that_its_message_lies_in() -> None:
    names = [Handle(RECEIPT._replace(retry=retry), 0).topic("t", "g") for retry in ("0", "1", "2")]
    assert names == ["t", "%RETRY%g_t", "%RETRY%g+t"]


@given(st.text(max_size=100))
def test_no_text_is_worse_than_refused(text: str) -> None:
    with suppress(RpcRefused):
        read_handle(text).topic("t", "g")


@pytest.mark.parametrize(
    "text",
    [
        "",
        RECEIPT.text(),
        f"{RECEIPT.text()} ",
        f"{RECEIPT.text()} -1",
        f"{RECEIPT.text()} x",
        f"{HANDLE.text()} 0",
        HANDLE.text().replace(" 0 broker", " 7 broker"),
    ],
)
def test_an_unreadable_handle_is_refused(text: str) -> None:
    with pytest.raises(RpcRefused, match="no receipt handle") as refused:
        read_handle(text)
    assert refused.value.code is Code.INVALID_RECEIPT_HANDLE


def test_the_handle_of_a_message_at_another_broker_is_refused() -> None:
    check_own(HANDLE, "broker-a")
    with pytest.raises(RpcRefused, match="lies at broker 'broker-a', and this is broker-b") as no:
        check_own(HANDLE, "broker-b")
    assert no.value.code is Code.INVALID_RECEIPT_HANDLE


def test_a_handle_ends_when_its_message_is_visible_again() -> None:
    check_current(HANDLE, 1_060_000)
    with pytest.raises(RpcRefused, match="expired"):
        check_current(HANDLE, 1_060_001)


def test_a_change_gives_a_handle_of_one_message() -> None:
    after = HANDLE.hidden_again(2_000_000, 5_000, 3)
    assert after.receipt == RECEIPT._replace(
        start_offset=12, pop_time=2_000_000, invisible_time=5_000
    )
    assert after.physical_offset == HANDLE.physical_offset


def test_a_change_in_order_keeps_the_batch() -> None:
    ordered = Handle(RECEIPT._replace(revive_qid=ORDER_REVIVE_QID), 1)
    after = ordered.hidden_again(1_000_000, 1_003, ORDER_REVIVE_QID)
    assert after.receipt.start_offset == RECEIPT.start_offset
