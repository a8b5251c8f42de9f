"""Version numbers seen in the field, and the edges of the known range."""

from __future__ import annotations

import pytest

from aerobee.remoting.wire.version import describe


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (213, "V4_0_0"),
        (401, "V4_9_4"),
        (409, "V4_9_8"),
        (478, "V5_3_3_SNAPSHOT"),
        (479, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (2**31 - 1, "HIGHER_VERSION"),
        (212, "212"),
        (0, "0"),
        (-1, "-1"),
    ],
)
def test_a_version_number_has_the_name_that_rocketmq_gives_it(version: int, name: str) -> None:
    assert describe(version) == name
