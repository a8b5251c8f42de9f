"""The file of the epochs is Java's, byte by byte, and a damaged one is not taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.epoch_file import EpochFileIllegal, decode_epochs, encode_epochs
from aerobee.store.format.epochs import Epoch, in_order

JAVA = {
    b"2\n1876544266\n1-0\n2-4717\n": (Epoch(1, 0), Epoch(2, 4717)),
    b"3\n954605504\n1-0\n2-4717\n7-1099511627776\n": (
        Epoch(1, 0),
        Epoch(2, 4717),
        Epoch(7, 1 << 40),
    ),
}
"""Written by EpochFileCache of 5.4.0."""


@pytest.mark.parametrize("data", JAVA)
def test_java_and_we_write_the_same_file(data: bytes) -> None:
    assert decode_epochs(data) == JAVA[data]
    assert encode_epochs(JAVA[data]) == data


def test_a_file_may_be_without_epochs_or_unchecked() -> None:
    assert decode_epochs(encode_epochs(())) == ()
    assert decode_epochs(b"1\n0\n1-0\n") == (Epoch(1, 0),)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "two numbers"),
        (b"x\n0\n", "two numbers"),
        (b"2\n1876544266\n1-0\n2-4718\n", "CRC"),
        (b"2\n0\n1-0\n", "has 1 epochs"),
        (b"1\n0\n1_0\n", "no epoch"),
        (b"2\n0\n2-0\n1-5\n", "not in order"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(data: bytes, said: str) -> None:
    with pytest.raises(EpochFileIllegal, match=said):
        decode_epochs(data)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1 << 60)), max_size=9), st.data())
def test_no_cut_of_a_file_is_taken(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    epochs = tuple(Epoch(*row) for row in zip(*map(sorted, zip(*rows, strict=True)), strict=True))
    if not epochs or not in_order(epochs):
        return
    content = encode_epochs(epochs)
    assert decode_epochs(content) == epochs
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(EpochFileIllegal):
        decode_epochs(content[:cut])
