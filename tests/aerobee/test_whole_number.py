"""Numbers in texts of others."""

import pytest

from aerobee.whole_number import epoch_ms, whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("0017", 17), ("9" * 19, 10**19 - 1)])
def test_decimal_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "²", "٣", "-1", "+1", "1_0", " 1", "1\n", "9" * 20, "9" * 5_000]
)
def test_any_other_text_is_none(text: str) -> None:
    assert whole_number(text) is None


def test_a_time_in_seconds_is_not_taken_for_one_in_milliseconds() -> None:
    with pytest.raises(ValueError, match="seconds; write milliseconds since 1970, 1700000000000"):
        epoch_ms("1700000000")
    assert epoch_ms("1700000000000") == 1_700_000_000_000
    assert (epoch_ms("0"), epoch_ms("7"), epoch_ms("noon")) == (0, 7, None)
