"""What a state looks like: of a group, a message, a body, and moved offsets."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aerobee.broker.console.looks import findings, looking, merging
from aerobee.broker.console.pages import states
from aerobee.client.steps.admin import group_findings, queue_findings

GROUP: dict[str, Any] = {
    "group": "g", "enabled": True, "lag": 0, "lag_s": 0.0, "members": 1, "per_s": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "severity", "word"),
    [
        ({}, "ok", "reads all"),
        ({"lag": 5}, "note", "behind"),
        ({"lag": 5, "lag_s": 60.0}, "error", "stands"),
        ({"lag": 5, "lag_s": 60.0, "per_s": 1.0}, "note", "behind"),
        ({"lag": 5, "members": 0}, "error", "nobody reads"),
        ({"members": 0}, "unknown", "nobody online"),
        ({"lag": 5, "enabled": False}, "warning", "paused"),
        ({"lag": None}, "unknown", "not known"),
        ({"lag": None, "lag_at_least": 5}, "note", "behind"),
        ({"lag": None, "lag_at_least": 5, "members": 0}, "error", "nobody reads"),
        ({"members": None}, "ok", "reads all"),
        ({"lag": 5, "lag_s": 60.0, "per_s": None}, "note", "behind"),
    ],
)
def test_a_group_has_the_state_of_its_row(
    changes: dict[str, Any], severity: str, word: str
) -> None:
    row = GROUP | changes
    row.setdefault("lag_at_least", row["lag"] or 0)
    assert states.group_state(row) == (severity, word)


def test_a_field_proposes_names_that_help_and_not_all() -> None:
    rows = [{"group": f"g{n:04}", "lag_at_least": n, "system": False} for n in range(500)]
    names = states.proposed([*rows, {"group": "CID", "system": True}], "group", "")
    assert len(names) == states.PROPOSED_MAX
    assert "g0499" in names
    assert "g0000" not in names
    assert "g0000" in states.proposed(rows, "group", "g0000")
    assert states.proposed([{"topic": "T", "kind": "normal"}], "topic", "x") == ["T"]


def test_the_worst_finding_counts() -> None:
    assert states.worst([]) == ""
    found = [{"severity": severity} for severity in ("note", "error", "warning")]
    assert states.worst(found) == "error"


def test_a_finding_leads_to_where_it_is_mended() -> None:
    def path(**finding: str) -> str:
        (linked,) = states.linked([{"severity": "error", "kind": "", **finding}])
        return str(linked["path"])

    assert path(kind="dead_letters", group="g") == "/letters?group=g"
    assert path(kind="paused", group="g") == "/group/resume?name=g"
    assert path(kind="late", group="a&b") == "/group?name=a%26b"
    assert path(kind="slave_behind") == "/replication"
    assert path(kind="refuses_sends") == "/replication"
    assert path(kind="other") == ""


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"body": '{"a":1}'}, ('{\n  "a": 1\n}', "JSON", 7)),
        ({"body": "{no"}, ("{no", "text", 3)),
        ({"body_base64": "AP8="}, (None, "hex", 2)),
        ({"body": "[" * 40}, ("[" * 40, "text", 40)),
        ({"body": '"[' * 40}, ('"[' * 40, "text", 80)),
        ({}, (None, "", None)),
    ],
)
def test_a_body_is_shown_in_the_form_that_it_has(
    message: dict[str, Any], content: tuple[str | None, str, int | None]
) -> None:
    shown = states.content_of(message, may_read=True)
    assert (shown.kind, shown.size) == content[1:]
    assert content[0] is None or shown.text == content[0]


def test_a_page_says_how_much_of_a_body_it_shows() -> None:
    """A body of 64 KiB would be as many MiB with a line for each of its values."""
    deep = "[" * 900 + "1," * 30_000 + "1" + "]" * 900
    shown = states.content_of({"body": deep}, may_read=True)
    assert (shown.text, shown.kind, shown.cut) == (deep, "text", None)
    most = states.SHOWN_MAX_BYTES
    cut = states.content_of({"body": "é" * most}, may_read=True)
    assert (cut.text, cut.size, cut.cut) == ("é" * (most // 2), 2 * most, most)


def test_nobody_without_the_right_is_shown_a_body() -> None:
    message = {"body": "secret"}
    assert states.content_of(message, may_read=False).text is None
    assert states.glance(message, may_read=False) is None
    assert states.glance(message, may_read=True) == "secret"


def test_moved_offsets_are_messages_again_and_messages_skipped() -> None:
    changes: list[dict[str, Any]] = [
        {"before": 10, "after": 4},
        {"before": 0, "after": 3},
        {"before": None, "after": 9},
    ]
    assert states.moved(changes) == (6, 3, 3)


def test_the_life_of_a_message_is_told_in_the_order_of_time() -> None:
    message = {"topic": "T", "broker": "b", "queue_id": 0, "queue_offset": 1}
    history = {
        "found": True,
        "copies": [
            {"kind": "dead", "waits": False, "message": {**message, "stored_at": "2026-01-02"}},
            {"kind": "stored", "waits": False, "message": {**message, "stored_at": "2026-01-01"}},
        ],
    }
    steps = states.life_of(history)
    assert [step["text"] for step in steps] == ["Stored in its topic", "Given up as a dead letter"]
    assert states.message_state(history).word == "dead letter"
    assert states.message_state({"found": False}).word == "not found"


def test_a_chart_is_drawn_as_lines_and_as_numbers() -> None:
    drawn = states.drawn([(0.0, 1.0, 2.0), (2.0, 3.0, 0.0)])
    assert msgspec.json.decode(drawn["series"])["times"] == [0, 2]
    assert all(line["points"].startswith("0.0,") for line in drawn["lines"])
    assert states.drawn([])["times"] == []


def test_every_kind_of_finding_has_a_heading() -> None:
    """The broker says what it found in English; other languages have the heading."""
    kinds: set[str] = set()
    for module in (group_findings, queue_findings, looking, findings, merging):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                kinds |= kinds_of(node)
    assert {"paused", "slow_handler", "nobody_online", "refuses_sends"} <= kinds
    assert not kinds - states.TITLES.keys()
    (shown,) = states.linked([{"severity": "note", "kind": "paused", "text": "x"}])
    assert shown["title"] == "The group is paused"


def kinds_of(call: ast.Call) -> set[str]:
    """The kinds that a call of `Finding(kind=…)` or `finding(severity, kind, …)` names."""
    assert isinstance(call.func, ast.Name)
    found = [word.value for word in call.keywords if word.arg == "kind"]
    if call.func.id == "finding":
        found += call.args[1:2]
    elif call.func.id != "Finding":
        return set()
    return {str(node.value) for node in found if isinstance(node, ast.Constant)}


def test_the_master_of_a_member_is_the_one_that_answers_in_its_group() -> None:
    def member(address: str, role: str | None, broker: str = "b") -> dict[str, Any]:
        return {"cluster": "c", "broker": broker, "address": address, "role": role}

    pair = [member("h:1", "master"), member("h:2", "slave")]
    others = [member("h:3", "slave", "lonely"), member("h:4", None, "lonely")]
    two = [member("h:5", "master", "two"), member("h:6", "master", "two")]
    members = [*pair, *others, *two]
    assert states.master_of(members, "h:2") == (pair[1], pair[0])
    assert states.master_of(members, "h:3") == (others[0], None)
    assert states.master_of(members, "h:5") == (two[0], None), "two masters are no way out"
    assert states.master_of(members, "h:9") == (None, None)
    members = [{**row, "problem": None, "state": "up"} for row in members]
    known = {row["address"]: row["master"] for row in states.with_masters(members)}
    assert [address for address, there in known.items() if there] == ["h:1", "h:2"]


@pytest.mark.parametrize(
    ("row", "severity", "word"),
    [
        ({"role": "slave", "problem": None, "state": "up"}, "ok", "in order"),
        ({"role": "slave", "problem": "behind", "state": "up"}, "warning", "not in order"),
        ({"role": None, "problem": "x", "state": "dead"}, "error", "does not answer"),
        ({"role": None, "problem": "x", "state": "forbidden"}, "error", "not for this account"),
        ({"role": None, "problem": "x", "state": "failing"}, "error", "tells nothing"),
    ],
)
def test_a_member_that_refuses_is_not_said_to_be_silent(
    row: dict[str, Any], severity: str, word: str
) -> None:
    assert states.standing_of(row) == (severity, word)
