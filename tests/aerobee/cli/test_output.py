"""Tables, lines and JSON of the same things; what a terminal would obey is shown."""

import io
import json
import re
import sys
from datetime import UTC, datetime

import click
import pytest
from rich.console import Console

from aerobee.cli import border, output, store
from aerobee.cli.border import WRONG_USAGE, exit_code_of
from aerobee.cli.output import Output, confirm, escaped, escaped_bytes, shown
from aerobee.errors import BrokerError

ROWS = [{"name": "a", "count": 12, "when": None}, {"name": "b\x1b[2J", "count": 7, "when": None}]


def test_in_a_pipe_values_are_separated_by_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows(ROWS)
    assert capsys.readouterr().out == "name\tcount\twhen\na\t12\t-\nb\\x1b[2J\t7\t-\n"
    Output().rows([{"name": "a"}, {"name": "b"}])
    assert capsys.readouterr().out == "a\nb\n"
    Output().rows([])
    assert capsys.readouterr().out == ""


def test_where_there_is_nothing_people_are_told_so_beside_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output().rows([], none="there are no users")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "there are no users\n")
    Output("json").rows([], none="there are no users")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("[]\n", "")


def test_programs_get_one_document_or_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a"}, {"name": "b"}]
    Output("json").rows(rows)
    assert capsys.readouterr().out == '[{"name":"a"},{"name":"b"}]\n'
    Output("jsonl").rows(rows)
    assert capsys.readouterr().out == '{"name":"a"}\n{"name":"b"}\n'
    Output("json").rows([])
    assert capsys.readouterr().out == "[]\n"
    Output("json").say("for people")
    assert capsys.readouterr().out == ""


def test_names_that_others_chose_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Output().record({"per_s": 1, "header UNIQ_KEY": "a", "header \x1b[2J": "b"})
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "per s            1",
        "header UNIQ_KEY  a",
        "header \\x1b[2J   b",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("screen", "drawn"), [(io.StringIO(), False), (Terminal(), True)])
def test_progress_is_drawn_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, drawn: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress(3, "sending") as advance:
        advance(1)
    assert ("1/3" in screen.getvalue()) is drawn
    with store.progress("verifying", as_json=False) as show:
        show(1, 2)
    assert ("verifying" in screen.getvalue()) is drawn
    size = len(screen.getvalue())
    with store.progress("counting", as_json=True) as show:
        show(1, 2)
    assert len(screen.getvalue()) == size


def test_a_terminal_gets_a_table_and_obeys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    Output().rows(ROWS)
    text = screen.getvalue()
    assert "\x1b" not in text
    assert "b\\x1b[2J" in text
    assert "name" in text.splitlines()[0] or "name" in text.splitlines()[1]


MEMBER = {
    "cluster": "DefaultCluster",
    "address": "192.168.100.100:10911",
    "role": "slave",
    "problem": "the master has no connection from it",
}


@pytest.mark.parametrize("width", [30, 40, 60])
def test_where_a_row_is_one_line_a_long_text_is_cut_and_no_number(width: int) -> None:
    """A lag of 3023 was shown as 3…, beside the name of a group that took all of the line."""
    rows = [{"group": "g" * 120, "lag": 3023, "per_s": 0.5}, {"group": "h", "lag": 1, "per_s": 2.0}]
    screen = io.StringIO()
    Console(file=screen, width=width).print(output.table_of(rows, width=width))
    lines = [line for line in screen.getvalue().splitlines() if line.strip()]
    assert len(lines) == 2 + len(rows)
    assert all(len(line) <= width for line in lines)
    assert re.search(r"g…  3023   0\.50", lines[2])


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            100,
            [" DefaultCluster  192.168.100.100:10911  slave  the master has no connection from it"],
        ),
        (60, [" DefaultCluster  192.168.100.100:10911  slave  the master"]),
        (
            52,
            [
                "cluster  DefaultCluster",
                "address  192.168.100.100:10911",
                "role     slave",
                "problem  the master has no connection from it",
                "",
                "cluster  DefaultCluster",
            ],
        ),
    ],
)
def test_no_word_of_a_table_is_broken_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, lines: list[str]
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    Output().rows([MEMBER, MEMBER])
    drawn = [line.rstrip() for line in re.sub("\x1b.*?m", "", screen.getvalue()).splitlines()]
    assert drawn[drawn.index(lines[0]) :][: len(lines)] == lines
    assert max(map(len, drawn)) <= width


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ([], "-"),
        (True, "yes"),
        (0.5, "0.50"),
        ([1, "a"], "1, a"),
        (datetime(2025, 1, 31, 12, tzinfo=UTC).astimezone(), None),
    ],
)
def test_values_read_well(value: object, text: str | None) -> None:
    assert shown(value) == text or (text is None and shown(value).startswith("2025-"))


def test_bodies_are_escaped_where_a_terminal_would_obey_them() -> None:
    assert escaped("päivää") == "päivää"
    assert escaped_bytes(b"a\nb\x1b[0m\xff") == "a\\nb\\x1b[0m\\xff"


HOSTILE = "\x1b]0;OWNED\x07 \x1b[2J \x9b31m \x7f \u202e \u2028 \r \x00"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")


@pytest.mark.parametrize("err", [False, True])
def test_no_text_moves_the_cursor_on_either_stream(
    capsys: pytest.CaptureFixture[str], err: bool
) -> None:
    output.echo(f"threads of {HOSTILE}\n\tat here", err=err)
    said = capsys.readouterr()
    text = said.err if err else said.out
    assert OBEYED.search(text) is None
    assert text.endswith("\n\tat here\n"), "line breaks and tabs are part of a text"
    assert "\\x1b]0;OWNED" in text


@pytest.mark.parametrize("style", ["json", "jsonl"])
def test_json_on_a_terminal_is_shown_and_means_the_same(
    capsys: pytest.CaptureFixture[str], style: str
) -> None:
    rows = [{"name": HOSTILE, HOSTILE: "a\u00a0b\u3000c \u4e2d \U0001f600"}]
    Output(style).rows(rows)
    said = capsys.readouterr().out
    assert OBEYED.search(said) is None
    assert "\\u009b31m \\u007f \\u202e \\u2028" in said
    found = json.loads(said)
    assert (found if style == "json" else [found]) == rows


def test_a_line_of_a_store_forges_no_other() -> None:
    message = {
        "topic": f"t{HOSTILE}\nforged",
        "queue_id": 0,
        "queue_offset": 1,
        "physical_offset": 2,
        "store_time": "now",
        "tags": HOSTILE,
        "keys": [HOSTILE],
        "body_sound": True,
        "body": HOSTILE,
    }
    line = store.line_of(message)
    assert OBEYED.search(line) is None
    assert "\n" not in line


def test_a_remark_of_a_broker_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(_: object) -> None:
        raise BrokerError(1, f"{HOSTILE}\nforged", "broker-a", "here", "a send")

    def unknown(_: object) -> None:
        raise click.ClickException(f"there is no user {HOSTILE}")

    for run in (refused, unknown):
        assert border.exit_code_of(run, []) != 0
        said = capsys.readouterr().err
        assert OBEYED.search(said) is None
        assert said.count("\n") == 1


def test_a_question_is_obeyed_by_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may quote a value that others have put there."""
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(click.Abort):
        confirm("remove k, which is \x1b]0;title\x07?")
    assert capsys.readouterr().err.startswith("remove k, which is \\x1b]0;title\\x07? [y/N]")


def test_an_answer_that_is_no_utf_8_is_said_to_be_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    assert exit_code_of(lambda _: confirm("go on?"), []) == WRONG_USAGE
    assert capsys.readouterr().err.endswith("aerobee: what was typed is no UTF-8\n")
