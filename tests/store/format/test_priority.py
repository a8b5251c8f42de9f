"""A priority is what a Java broker reads as a number from 0 on."""

import pytest

from aerobee.store.format.priority import PRIORITY_MAX, priority_of


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("0", 0),
        ("7", 7),
        ("+7", 7),
        ("007", 7),
        ("0" * 32_000 + "7", 7),
        (str(PRIORITY_MAX), PRIORITY_MAX),
        (str(PRIORITY_MAX + 1), None),
        ("9" * 32_000, None),
        ("-1", None),
        ("-0", None),
        ("", None),
        (" 7", None),
        ("7 ", None),
        ("7\n", None),
        ("7.0", None),
        ("7e0", None),
        ("0x7", None),
        ("²", None),
        ("seven", None),
        (None, None),
    ],
)
def test_only_a_number_of_32_bits_is_a_priority(text: str | None, priority: int | None) -> None:
    assert priority_of(text) == priority
