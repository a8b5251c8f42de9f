import pytest

from aerobee.broker.admin.runtime_info import in_units, used_ratio
from aerobee.store.files.machine import Space


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (12_595, "12.3 KiB"),
        (252 * 2**30, "252.0 GiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_sizes_are_told_in_units_of_1024(size_bytes: int, text: str) -> None:
    assert in_units(size_bytes) == text


def test_a_ratio_is_rounded_up_to_two_places_and_minus_one_when_unknown() -> None:
    space = Space(total_bytes=1_000, free_bytes=899, available_bytes=899)
    assert used_ratio(space) == "0.11"
    assert used_ratio(None) == "-1"
