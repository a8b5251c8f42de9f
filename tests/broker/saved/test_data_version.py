from typing import Any

import pytest

from aerobee.broker.saved.data_version import bumped, version_document, version_of
from aerobee.remoting.wire.bodies.data_version import DataVersion


def test_a_change_moves_counter_and_time_and_keeps_the_state() -> None:
    before = DataVersion(state_version=3, timestamp=1, counter=7)
    assert bumped(before, 99) == DataVersion(state_version=3, timestamp=99, counter=8)


def test_versions_are_equal_only_when_all_three_numbers_are() -> None:
    base = DataVersion(state_version=1, timestamp=2, counter=3)
    assert base == DataVersion(state_version=1, timestamp=2, counter=3)
    assert base != DataVersion(state_version=0, timestamp=2, counter=3)
    assert base != DataVersion(state_version=1, timestamp=0, counter=3)
    assert base != DataVersion(state_version=1, timestamp=2, counter=0)


def test_a_file_gives_back_the_version_it_was_given() -> None:
    version = DataVersion(state_version=1, timestamp=2, counter=3)
    assert version_of({"dataVersion": version_document(version)}) == version


def test_a_file_of_the_4_9_line_has_no_state_version() -> None:
    document = {"dataVersion": {"counter": 3, "timestamp": 2}}
    assert version_of(document) == DataVersion(state_version=0, timestamp=2, counter=3)
    assert version_of({}) == DataVersion()


@pytest.mark.parametrize("broken", [7, [], "x", {"counter": "many"}])
def test_something_else_is_no_version(broken: Any) -> None:
    with pytest.raises(ValueError):
        version_of({"dataVersion": broken})
