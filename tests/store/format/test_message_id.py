import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.message_id import (
    offset_id,
    offset_ids,
    read_offset_id,
    read_uniq_id,
    uniq_id,
)

ADDRESSES = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
HOSTS = st.builds(lambda at, port: at + port.to_bytes(4, "big"), ADDRESSES, st.integers(0, 0xFFFF))


@given(HOSTS, st.integers(0, 2**63 - 1))
def test_an_offset_id_leads_back(host: bytes, physical_offset: int) -> None:
    message_id = offset_id(host, physical_offset)
    assert len(message_id) in (32, 56)
    assert read_offset_id(message_id) == (host, physical_offset)
    assert read_offset_id(message_id.lower()) == (host, physical_offset)


@given(HOSTS, st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_the_ids_of_many_are_those_of_each(host: bytes, physical_offsets: list[int]) -> None:
    ids = offset_ids(host, physical_offsets)
    assert ids.split(",") == [offset_id(host, at) for at in physical_offsets]


@pytest.mark.parametrize("text", ["", "0" * 31, "g" * 32, "0 " * 16, "é" * 32])
def test_other_texts_are_no_offset_ids(text: str) -> None:
    with pytest.raises(ValueError):
        read_offset_id(text)


@given(st.sampled_from([4, 16]), st.integers(1, 0xFFFF), st.integers(0, 2**31 - 1))
def test_what_a_client_makes_is_no_offset_id(width: int, process_id: int, month_ms: int) -> None:
    """A port has two bytes, and a client has the number of its process there."""
    with pytest.raises(ValueError, match="names no port"):
        read_offset_id(uniq_id(bytes(width), process_id, 7, month_ms, 9))


def test_a_uniq_id_holds_its_parts() -> None:
    made = uniq_id(bytes([127, 0, 0, 1]), 0xAAAA, 0x18B4AAC2, 0, 1)
    assert made == "7F000001AAAA18B4AAC2000000000001"


def test_parts_of_a_uniq_id_are_cut_to_their_width() -> None:
    assert len(uniq_id(bytes(16), 1 << 20, -1, 2**31, 70_000)) == 56


@given(st.sampled_from([4, 16]), st.integers(0, 0xFFFF), st.integers(0, 2**31 - 1))
def test_a_uniq_id_is_read_back(width: int, process_id: int, month_ms: int) -> None:
    address = bytes(range(width))
    made = uniq_id(address, process_id, 7, month_ms, 9)
    assert read_uniq_id(made) == read_uniq_id(made.lower()) == (address, process_id, month_ms)


@pytest.mark.parametrize("text", ["", "order-17", "g" * 32, "0 " * 16])
def test_other_texts_are_no_uniq_ids(text: str) -> None:
    with pytest.raises(ValueError):
        read_uniq_id(text)
