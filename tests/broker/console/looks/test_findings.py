"""What is said to be wrong: with a group, and with a disk."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.console.looks.findings import disk_findings, findings_of, ranked

GROUP: dict[str, Any] = {
    "group": "g", "system": False, "lag_at_least": 0, "enabled": True, "members": 1, "lag_s": 0.0,
    "dead_letters": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"lag_at_least": 5}, []),
        ({"lag_at_least": 5, "lag_s": 61.0}, ["late"]),
        ({"lag_at_least": 5, "lag_s": None}, []),
        ({"lag_at_least": 5, "members": 0}, ["no_member"]),
        ({"lag_at_least": 5, "members": None}, []),
        ({"lag_at_least": 5, "members": 0, "enabled": False}, ["paused"]),
        ({"dead_letters": 3}, ["dead_letters"]),
        ({"lag_at_least": 5, "members": 0, "system": True}, []),
    ],
)
def test_a_group_has_the_findings_of_its_row(changes: dict[str, Any], kinds: list[str]) -> None:
    assert [found["kind"] for found in findings_of(GROUP | changes)] == kinds


@pytest.mark.parametrize(
    ("percent", "full_in_s", "kinds"),
    [
        (None, None, []),
        (40.0, 60.0, []),
        (60.0, None, []),
        (60.0, 3_600.0, ["disk_fills"]),
        (60.0, 90_000.0, []),
        (86.0, None, ["disk_full"]),
    ],
)
def test_a_disk_is_a_finding_before_it_is_full(
    percent: float | None, full_in_s: float | None, kinds: list[str]
) -> None:
    assert [found["kind"] for found in disk_findings("b", percent, full_in_s)] == kinds


def test_the_severest_come_first() -> None:
    notes = [{"severity": "note"}] * 3
    found = ranked([*notes, {"severity": "error"}])
    assert [row["severity"] for row in found] == ["error", "note", "note", "note"]


@pytest.mark.parametrize(
    "changes",
    [{"lag_at_least": 5, "members": 0}, {"lag_at_least": 5, "enabled": False}, {"dead_letters": 3}],
)
def test_an_advice_is_one_command_whatever_the_name_of_the_group(changes: dict[str, Any]) -> None:
    (found,) = findings_of(GROUP | changes | {"group": "g|reboot"})
    assert found["advice"].endswith(" 'g|reboot'")
