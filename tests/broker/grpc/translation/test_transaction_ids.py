"""Ids of transactions say where the half message lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.transaction_ids import TransactionId, read_transaction_id
from aerobee.remoting.grpc.enums import Code


@given(st.integers(0, (1 << 60) - 1), st.integers(0, (1 << 60) - 1), st.text())
def test_an_id_comes_back_as_it_went(physical_offset: int, queue_offset: int, text: str) -> None:
    half = TransactionId(physical_offset, queue_offset, text)
    assert read_transaction_id(half.text()) == half


@pytest.mark.parametrize("text", ["", " ", "01AB", "x.1.2", "-1.2.3", "1.2"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(RpcRefused) as refused:
        read_transaction_id(text)
    assert refused.value.code is Code.INVALID_TRANSACTION_ID
