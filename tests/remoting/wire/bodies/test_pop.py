"""Acknowledgements in one request, in every spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.pop import BatchAckRequest, bit_set, offsets_in

SHORT = (
    b'{"acks":[{"b":"AQI=","c":"g","it":60000,"pt":1700000000000,"q":0,"r":"0","rq":3,'
    b'"so":100,"t":"T"}],"brokerName":"broker-a"}'
)
LONG = (
    b'{"acks":[{"bitSet":"AQI=","consumerGroup":"g","invisibleTime":60000,"popTime":1700000000000,'
    b'"queueId":0,"retry":"0","reviveQueueId":3,"startOffset":100,"topic":"T"}],'
    b'"brokerName":"broker-a"}'
)


def test_javas_batch_is_read_and_written() -> None:
    request = BatchAckRequest.from_bytes(SHORT)
    assert request.to_bytes() == SHORT
    assert offsets_in(request.acks[0].bits, request.acks[0].start_offset) == [100, 109]


def test_long_names_mean_the_same() -> None:
    assert BatchAckRequest.from_bytes(LONG) == BatchAckRequest.from_bytes(SHORT)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_a_bit_set_gives_back_its_offsets(offsets: set[int]) -> None:
    assert offsets_in(bit_set(offsets, 0), 7) == sorted(offset + 7 for offset in offsets)


@given(st.integers(0, 500), st.sampled_from([0, 1, 7, 9]))
def test_a_bit_set_without_gaps_gives_back_its_offsets(count: int, first: int) -> None:
    offsets = [*range(first, first + count)]
    assert offsets_in(bit_set(offsets, 0), 7) == [offset + 7 for offset in offsets]


@pytest.mark.parametrize("bits", ["?", "AQI", "A" * 20_000])
def test_a_broken_bit_set_is_refused(bits: str) -> None:
    with pytest.raises(BodyError, match="BatchAckRequest: b "):
        offsets_in(bits, 0)
