"""The log: one event per line, harmless to read, and every event is in docs/events.md."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from aerobee.broker.process import log

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SOURCES = ("remoting/**/*.py", "store/**/*.py", "broker/**/*.py", "aerobee/threads.py")
METHODS = frozenset({"debug", "info", "warning", "error", "exception"})
EVENT = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


def lines(text: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.getvalue().splitlines()]


def logged(**keys: Any) -> dict[str, Any]:
    out = io.StringIO()
    log.configure(stream=out)
    structlog.get_logger().info("part.happened", **keys)
    (line,) = lines(out)
    return line


def test_an_event_is_one_line_of_json_with_level_and_utc_time() -> None:
    line = logged(elapsed_ms=1.5, count=3, clean=True, file=None)
    timestamp = datetime.fromisoformat(line.pop("timestamp"))
    assert timestamp.utcoffset() == timedelta(0)
    assert line == {
        "event": "part.happened",
        "level": "info",
        "elapsed_ms": 1.5,
        "count": 3,
        "clean": True,
        "file": None,
    }


@pytest.mark.parametrize("as_json", [True, False])
def test_a_value_cannot_forge_a_line_or_move_the_cursor(as_json: bool) -> None:
    out = io.StringIO()
    log.configure(stream=out, as_json=as_json)
    evil = "a\n2026-01-01 [error] forged\r\x1b[2J\x9b1m\x7f\u2028\udcff"
    structlog.get_logger().info("part.happened", topic=evil, raw=evil.encode("utf-8", "replace"))
    text = out.getvalue()
    assert text.count("\n") == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028]", text)
    assert r"\u001b[2J" in text.replace("\\\\", "\\")


def test_a_long_value_is_cut() -> None:
    cut = logged(topic="x" * 1_000)["topic"]
    assert len(cut) == log.MAX_VALUE_CHARS
    assert cut.endswith("x…")
    assert len(logged(topic="\n" * 1_000)["topic"]) == log.MAX_VALUE_CHARS


def test_the_remedy_behind_long_paths_is_not_cut() -> None:
    reason = f"{'/a' * 400} is damaged: restore it"
    event: dict[str, Any] = {"event": "broker.refused", "reason": reason}
    assert log.harmless(None, "", event)["reason"] == reason


@pytest.mark.parametrize(
    "keys",
    [
        {"secret_key": "s3cr3t"},
        {"Signature": "s3cr3t"},
        {"password": "s3cr3t"},
        {"ext": {"AccessKey": "me", "Signature": "s3cr3t", "a": "b"}},
        {"body": b'{"secretKey":"s3cr3t","x":1}'},
        {"text": "accessKey=me&secretKey=s3cr3t;password: s3cr3t"},
    ],
)
def test_a_secret_is_never_logged(keys: dict[str, Any]) -> None:
    line = json.dumps(logged(**keys))
    assert "s3cr3t" not in line
    assert "***" in line


def test_a_traceback_keeps_its_lines_and_nothing_else_that_moves_the_cursor() -> None:
    out = io.StringIO()
    log.configure(stream=out)
    try:
        raise ValueError("bad\x1b[2J password=s3cr3t")
    except ValueError:
        structlog.get_logger().exception("request.failed")
    (line,) = lines(out)
    assert line["level"] == "error"
    assert line["exception"].splitlines()[0] == "Traceback (most recent call last):"
    assert line["exception"].endswith(r"ValueError: bad\u001b[2J password=***")


def test_what_is_below_the_level_is_not_written() -> None:
    out = io.StringIO()
    log.configure("warning", stream=out)
    logger = structlog.get_logger()
    logger.info("part.happened")
    logger.warning("part.healed")
    assert [line["event"] for line in lines(out)] == ["part.healed"]
    with pytest.raises(KeyError):
        log.configure("loud")


def test_a_logger_made_before_obeys() -> None:
    logger = structlog.get_logger()
    out = io.StringIO()
    log.configure(stream=out)
    logger.info("part.happened")
    assert len(lines(out)) == 1


def test_warnings_of_libraries_leave_in_the_same_form() -> None:
    out = io.StringIO()
    log.configure("debug", stream=out)
    logging.getLogger("library").warning("hello %s", "\x1b")
    logging.getLogger("library").info("chatter")
    (line,) = lines(out)
    assert (line["event"], line["level"]) == (r"hello \u001b", "warning")


def test_a_library_that_repeats_itself_writes_a_few_lines() -> None:
    lines = io.StringIO()
    log.configure(stream=lines)
    for number in range(100):
        logging.getLogger("trio.serve_listeners").error("accept failed %d", number)
    logging.getLogger("another").warning("once")
    assert len(lines.getvalue().splitlines()) == log.LIBRARY_LINES + 1


def test_nothing_goes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure()
    structlog.get_logger().info("part.happened")
    out, err = capfd.readouterr()
    assert out == ""
    assert json.loads(err)["event"] == "part.happened"


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of a logger's methods: log.info(...), self._log.warning(...), logger.error(...)."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        name = getattr(owner, "attr", getattr(owner, "id", ""))
        if node.func.attr in METHODS and re.fullmatch(r"_*(log|logger)", name):
            yield node


def literals(event: ast.expr | None) -> list[str]:
    """The one name that the event has, or the two of a conditional expression."""
    if isinstance(event, ast.Constant) and isinstance(event.value, str):
        return [event.value]
    if isinstance(event, ast.IfExp):
        return literals(event.body) + literals(event.orelse)
    return []


def used_events() -> list[tuple[str, str, str]]:
    """Event, level and place of every call in the source."""
    found = []
    for source in SOURCES:
        for file in sorted(ROOT.glob(source)):
            for call in calls(ast.parse(file.read_text("utf-8"))):
                place = f"{file.relative_to(ROOT)}:{call.lineno}"
                events = literals(call.args[0] if call.args else None)
                assert events, f"{place}: the event is not a literal"
                assert isinstance(call.func, ast.Attribute)
                level = call.func.attr.replace("exception", "error")
                found += [(event, level, place) for event in events]
    return found


def listed_events() -> list[tuple[str, list[str]]]:
    """Event and levels of each row of docs/events.md, in order."""
    text = (ROOT / "docs" / "events.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `([^`]+)` \| ([^|]+) \|", text)
    return [(event, re.findall(r"\w+", levels)) for event, levels in rows]


def test_every_event_of_the_source_is_listed_and_every_listed_one_is_used() -> None:
    used, listed = used_events(), dict(listed_events())
    missing = [f"{place}: {event}" for event, _, place in used if event not in listed]
    assert missing == []
    assert sorted(set(listed) - {event for event, _, _ in used}) == []


def test_events_are_named_part_and_what_happened_and_listed_in_order() -> None:
    names = [event for event, _ in listed_events()]
    assert names == sorted(set(names))
    assert [name for name in names if not EVENT.fullmatch(name)] == []


def test_an_event_has_the_levels_that_are_listed() -> None:
    listed = dict(listed_events())
    wrong = [
        f"{place}: {event} is {level}, listed as {listed[event]}"
        for event, level, place in used_events()
        if event in listed and level not in listed[event]
    ]
    assert wrong == []


def test_of_each_event_so_many_lines_are_written_and_the_next_says_how_many_were_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(log, "monotonic", lambda: now)
    out = io.StringIO()
    log.configure("debug", stream=out)
    logger = structlog.get_logger()
    for _ in range(log.LINES + 7):
        logger.warning("filter.refused")
        logger.error("request.failed", code=1)
        logger.debug("connection.opened")
    logger.info("other.happened")
    now += log.PERIOD_S
    logger.warning("filter.refused")
    logger.warning("filter.refused")
    seen = lines(out)
    refused = [line for line in seen if line["event"] == "filter.refused"]
    assert len(refused) == log.LINES + 2
    assert [line.get("left_out") for line in refused[-3:]] == [None, 7, None]
    assert len([line for line in seen if line["event"] == "request.failed"]) == 5
    assert len([line for line in seen if line["event"] == "connection.opened"]) == log.LINES + 7
    assert [line["level"] for line in seen if line["event"] == "other.happened"] == ["info"]


def test_names_of_events_without_end_take_no_memory() -> None:
    log.configure(stream=io.StringIO())
    limits = log.LineLimits()
    for number in range(3 * log.EVENTS_MAX):
        limits(None, "warning", {"event": f"of a library {number}"})
    assert len(limits.limits) <= log.EVENTS_MAX


@pytest.mark.parametrize("as_json", [True, False])
def test_journald_gets_the_level_in_front_and_no_second_time(as_json: bool) -> None:
    out = io.StringIO()
    log.configure(stream=out, as_json=as_json, journal=True)
    structlog.get_logger().warning("part.happened")
    logging.getLogger("lib").error("failed")
    ours, theirs = out.getvalue().splitlines()
    assert ours.startswith("<4>")
    assert theirs.startswith("<3>")
    assert not re.search(r"20\d\d-", out.getvalue())
    if as_json:
        assert json.loads(ours[3:]) == {"event": "part.happened", "level": "warning"}


def test_the_stream_of_the_journal_is_known_by_its_device_and_inode(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert log.is_journal(stream.fileno(), environ)
        assert not log.is_journal(stream.fileno(), {"JOURNAL_STREAM": "1:2"})
        assert not log.is_journal(stream.fileno(), {})
    assert not log.is_journal(-1, environ)


def test_the_level_changes_at_run_time_for_loggers_made_before() -> None:
    out = io.StringIO()
    before = structlog.get_logger()
    log.configure("warning", stream=out)
    before.info("part.left_out")
    log.set_level("debug")
    before.debug("part.happened")
    assert [line["event"] for line in lines(out)] == ["part.happened"]
