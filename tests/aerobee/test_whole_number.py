"""Numbers in texts of others."""

import pytest

from aerobee.whole_number import whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("0017", 17), ("9" * 19, 10**19 - 1)])
def test_decimal_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "²", "٣", "-1", "+1", "1_0", " 1", "1\n", "9" * 20, "9" * 5_000]
)
def test_any_other_text_is_none(text: str) -> None:
    assert whole_number(text) is None
