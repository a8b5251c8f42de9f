"""The benches' own arithmetic and command lines, and what a stopped run leaves.

Of the comparison with the Java broker: medians, ratios, targets, tables.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import structlog

from bench import flame, floor, machine, plots, tables
from bench.beside_java.__main__ import interpreters
from bench.beside_java.figures import AT_LEAST, AT_MOST, Report, Row, Target
from bench.beside_java.sides import Plan, attempt
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BENCH = Path(__file__).parents[1] / "bench"

FASTER = Target("rate", AT_LEAST, 1.8)
SHORTER = Target("p99", AT_MOST, 0.3)


@pytest.fixture(autouse=True)
def logging_stays() -> Iterator[None]:
    """Programs that are run in this process set logging up; other tests read what is logged."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def row_of(ours: list[float], java: list[float]) -> Row:
    row = Row("produce", (FASTER,))
    for rate in ours:
        row.add("aerobee", {"rate": rate})
    for rate in java:
        row.add("java", {"rate": rate})
    return row


def plan_of(directory: Path, *, seconds: float, only: str = "") -> Plan:
    return Plan(
        runs=2,
        seconds=1,
        warm_up_s=0,
        quick=True,
        java=False,
        pythons={},
        directory=directory,
        ends_at=time.monotonic() + seconds,
        only=only,
    )


def test_a_ratio_is_that_of_the_medians() -> None:
    row = row_of([30_000, 90_000, 20_000], [10_000, 15_000, 60_000])
    assert FASTER.value(row) == 2.0
    assert FASTER.met(row)
    assert row.spread(FASTER) == "0.33–6.00"
    assert FASTER.line(row) == (
        "| produce: msgs/s | 30,000 | 15,000 | 2.00 (0.33–6.00) | ≥ 1.8 | met |"
    )


def test_a_limit_that_is_not_reached_is_missed() -> None:
    assert "**missed**" in FASTER.line(row_of([17_900], [10_000]))
    row = Row("produce", (SHORTER,))
    row.add("aerobee", {"p99": 3.1})
    row.add("java", {"p99": 10.0})
    assert SHORTER.met(row) is False
    assert SHORTER._replace(limit=0.31).met(row)


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    row = row_of([30_000], [])
    assert FASTER.met(row) is None
    assert FASTER.line(row) == "| produce: msgs/s | 30,000 | – |  | ≥ 1.8 |  |"


def test_an_aim_without_another_side_is_about_the_figure_itself() -> None:
    target = Target("rate", AT_MOST, 40_000, over="")
    assert target.met(row_of([30_000], []))
    assert target.line(row_of([50_000], [])).endswith("| 50,000 |  |  | ≤ 40000 | **missed** |")


def test_the_file_is_whole_after_every_row(tmp_path: Path) -> None:
    report = Report(tmp_path / "result.json", {"machine": "2 cores"})
    report.add(row_of([20.0], [10.0]))
    first = json.loads(report.path.read_text())
    report.add(row_of([10.0], [10.0]))
    assert first == {
        "facts": {"machine": "2 cores"},
        "rows": [
            {
                "name": "produce",
                "turns": {"aerobee": [{"rate": 20.0}], "java": [{"rate": 10.0}]},
                "failure": "",
            }
        ],
    }
    assert len(json.loads(report.path.read_text())["rows"]) == 2
    assert report.verdict() == "1 of 2 targets met, 0 rows without a figure"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_sides_with_other_interpreters_are_held_to_the_same_aims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_of([20.0, 30.0], [10.0, 10.0])
    for rate in (30.0, 60.0):
        row.add("python-3.13.5", {"rate": rate})
    report = Report(tmp_path / "result.json", {}, ["python-3.13.5", "not measured"])
    report.add(row)
    assert capsys.readouterr().out.splitlines() == [
        "| produce: msgs/s | 25 | 10 | 2.50 (2.00–3.00) | ≥ 1.8 | met |",
        "| produce, python-3.13.5: msgs/s | 45 | 10 | 4.50 (3.00–6.00) | ≥ 1.8 | met |",
    ]
    assert report.verdict() == (
        "1 of 1 targets met, 1 of 1 targets met by python-3.13.5, "
        "0 of 0 targets met by not measured, 0 rows without a figure"
    )


def test_the_first_interpreter_has_the_aims_and_each_other_a_name_of_its_own() -> None:
    assert list(interpreters([])) == ["aerobee"]
    version = f"python-{platform.python_version()}"
    assert interpreters(["/no/such", sys.executable]) == {
        "aerobee": "/no/such",
        version: sys.executable,
    }
    assert list(interpreters([sys.executable] * 3)) == ["aerobee", f"{version}-2", f"{version}-3"]


def test_the_heading_says_which_interpreter_and_how_it_was_built() -> None:
    said = machine.interpreter_of(sys.executable)
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    assert said.startswith(f"Python {platform.python_version()} (")
    assert ("(--enable-optimizations" in said) == optimised
    assert re.search(r"; \d+ ns for an empty call at best\), trio [\d.]+ msgspec ", said)
    assert said[:20] in machine.describe(sys.executable)


def test_a_row_that_fails_is_said_and_the_next_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(tmp_path / "result.json", {})

    def fails(_: Row) -> None:
        raise OSError("no\nroom")

    attempt(plan_of(tmp_path, seconds=60), report, row_of([], []), fails)
    attempt(
        plan_of(tmp_path, seconds=60),
        report,
        row_of([], []),
        lambda row: row.add("aerobee", {"rate": 1.0}),
    )
    assert [row.failure for row in report.rows] == ["failed: OSError: no room", ""]
    assert "failed: OSError: no room" in capsys.readouterr().out


def test_what_is_left_when_the_time_is_up_is_said(tmp_path: Path) -> None:
    report = Report(tmp_path / "result.json", {})
    attempt(
        plan_of(tmp_path, seconds=-1), report, row_of([], []), lambda _: pytest.fail("too late")
    )
    assert report.rows[0].failure == "not measured: the time was up"


def test_rows_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    report = Report(tmp_path / "result.json", {})
    plan = plan_of(tmp_path, seconds=60, only="pull")
    attempt(plan, report, row_of([], []), lambda _: pytest.fail("not asked for"))
    assert report.rows == []


ROWS: list[plots.Measured] = [
    {
        "name": "produce <128 B>",
        "turns": {
            "aerobee": [{"rate": 30.0, "p99": 1.0, "cpu": 2.0}],
            "java": [{"rate": 10.0, "p99": 100.0, "cpu": 2.0}],
        },
    },
    {"name": "only ours", "turns": {"aerobee": [{"rate": 30.0}]}},
    {
        "name": "rate with 1,000 topics",
        "turns": {"empty": [{"cpu": 20.0}], "1,000 topics": [{"cpu": 30.0}, {"cpu": 50.0}]},
    },
]


def words_of(svg: str) -> list[str]:
    """Whatever text is in it; the file has to be well-formed XML."""
    space = "{http://www.w3.org/2000/svg}"
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{space}text")]


def test_the_plot_has_a_bar_for_each_figure_that_both_have() -> None:
    drawn = plots.beside_java(ROWS, "today")
    said = words_of(drawn)
    assert said.count("produce <128 B>") == 3
    assert [one for one in ("3.00", "0.01", "1.00") if one in said] == ["3.00", "0.01", "1.00"]
    assert "only ours" not in said
    assert drawn.count('class="good"') == 3
    assert "prefers-color-scheme:dark" in drawn


def test_what_grows_is_drawn_over_the_empty_broker() -> None:
    said = words_of(plots.growth(ROWS, "today"))
    assert "1,000 topics 2.00" in said


def test_the_tables_are_printed_in_order_from_a_file_of_any_age() -> None:
    both = {"rate": 20.0, "p99": 2.0, "cpu": 3.0}
    rows = [
        {
            "name": "rate beside 2,000 connections",
            "turns": {"empty": [both], "2,000 connections": [both]},
            "failure": "",
        },
        {
            "name": "produce 128 B, 64 × 1",
            "turns": {"aerobee": [both], "java": [both], "python-3.11.2-compiled": [both]},
            "failure": "",
        },
        {
            "name": "ready from an empty directory",
            "turns": {"aerobee": [{"ready_s": 0.2}], "java": [{"ready_s": 2.0}]},
            "failure": "",
        },
    ]
    facts = {"others": {"python-3.11.2-compiled": "Python 3.11.2"}}
    said = list(tables.tables({"facts": facts, "rows": rows}))
    assert [one for one in said if one.startswith("###")] == [
        "### Throughput",
        "### Latency",
        "### Start",
        "### Worst case",
    ]
    assert (
        "| work | Java | pure | ratio (pairs) | compiled | ratio (pairs) | target | met by |"
        in said
    )
    row = "| produce 128 B, 64 × 1: msgs/s | 20 | 20 | 1.00 (1.00–1.00) | 20 | 1.00 (1.00–1.00) "
    assert f"{row}| ≥ 1.8 | **neither** |" in said
    ready = (
        "| ready from an empty directory: s | 2 | 0.2 | 0.10 (0.10–0.10) |  |  | ≤ 0.4 s | met |"
    )
    assert ready in said
    grown = (
        "| rate with 2,000 connections: msgs/s | 20 | 20 | 1.00 (1.00–1.00) |  |  | ≥ 0.9 | met |"
    )
    assert grown in said


def test_the_floor_answers_whole_frames_and_keeps_the_rest() -> None:
    head = b'{"code":310,"opaque":77,"version":401}'
    frame = (len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head
    pending = bytearray(frame * 2 + frame[:20])
    answered = floor.answers(pending)
    assert answered.count(b'"opaque":77,') == 2
    assert pending == frame[:20]


def test_an_earlier_file_stays_until_a_row_has_figures(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("earlier")
    report = Report(path, {})
    report.save()
    report.add(Row("late", (), failure="not measured: the time was up"))
    assert path.read_text() == "earlier"
    report.add(row_of([1.0], [1.0]))
    assert len(json.loads(path.read_text())["rows"]) == 2


PROGRAMS = sorted(
    f"bench.{'.'.join(path.relative_to(BENCH).with_suffix('').parts)}"
    for path in BENCH.rglob("*.py")
    if "\ndef main() -> None:" in path.read_text("utf-8")
)
WITHOUT_SPARK = [name for name in PROGRAMS if ".spark_" not in name]


def test_every_bench_ends_what_it_started_when_it_is_stopped() -> None:
    assert len(PROGRAMS) > 20
    for name in PROGRAMS:
        source = (BENCH.parent / f"{name.replace('.', '/')}.py").read_text("utf-8")
        assert "\n@program\ndef main() -> None:" in source, name


def test_benches_need_nothing_of_the_tests_libraries() -> None:
    code = (
        "import sys, importlib\n"
        "for name in ('pytest', 'hypothesis', 'pytest_trio'): sys.modules[name] = None\n"
        f"for name in {WITHOUT_SPARK}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=BENCH.parent
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("", "--nosuch", "unrecognized arguments: --nosuch"),
        ("beside_java", "--minutes -1", "--minutes: -1 is no number from 0 on"),
        ("beside_java", "--minutes 0", "--minutes: 0 is not above 0"),
        ("beside_java", "--only nosuch", "  SYNC_FLUSH 128 B, 1 × 1\n"),
        ("beside_java", "--python /nonexistent", "--python: /nonexistent is no program"),
        ("beside_java", "--python /bin/false", "does not have the broker's libraries"),
        ("beside_java", "--runs 0", "--runs: 0 is below 1"),
        ("beside_java", "--seconds nan", "--seconds: nan is no number from 0 on"),
        ("tuning", "--runs 0", "--runs: 0 is below 1"),
        ("tuning", "--set brokers", "--set: brokers is not KEY=VALUE"),
        ("overload", "--nosuch", "unrecognized arguments: --nosuch"),
        ("floor", "/nonexistent", "directory: /nonexistent is no directory"),
        ("machine", "--nosuch", "unrecognized arguments: --nosuch"),
        ("reads", "--only nosuch", "  pull of 32 x 128 B, 16 x 1\n"),
        ("reads", "--rounds 0", "--rounds: 0 is below"),
        ("rounds", "--only nosuch", "  128 B, 64 connections x 1\n"),
        ("rounds", "--rounds 0", "--rounds: 0 is below"),
        ("tuning", "--only nosuch", "  pulls of 128 and not 32\n"),
    ],
)
def test_a_wrong_word_is_told_before_anything_is_measured(
    name: str,
    words: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    main = main_of(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / ".cache" / "beside_java.json").exists()


@pytest.mark.parametrize("name", ["plots", "tables"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("", "is no JSON"),
        ("[]", "has no rows of bench.beside_java"),
        ('{"facts": {"date": "today"}, "rows": []}', "has no rows of bench.beside_java"),
    ],
)
def test_a_file_without_results_is_told(
    name: str,
    content: str | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(sys, "argv", ["bench", str(path)])
    with pytest.raises(SystemExit) as ended:
        main_of(name)()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def main_of(name: str) -> Callable[[], None]:
    """What it runs, without what it does about signals."""
    parts = ["bench", name] if name else ["bench"]
    if name in {"", "beside_java"}:
        parts.append("__main__")
    main: Callable[[], None] = importlib.import_module(".".join(parts)).main.__wrapped__
    return main


@pytest.mark.service
@pytest.mark.parametrize(
    "words",
    [
        "rounds --rounds 100000",
        "sdk --messages 100000000",
    ],
)
def test_a_bench_that_is_told_to_stop_leaves_nothing(words: str, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    name, *options = words.split()
    command = [sys.executable, "-m", f"bench.{name}", *options]
    env = {**os.environ, "TMPDIR": str(scratch)}
    with Child(command, log=tmp_path / "errors", env=env, at=BENCH.parent) as child:

        def open_store() -> bool:
            return any(scratch.rglob("abort"))

        eventually(open_store, within_s=60, what="its store is open")
        started = children_of(child.pid)
        assert child.stop(within_s=60) == 1
        assert child.errors().splitlines()[-1] == "stopped"
        assert "Traceback" not in child.errors()
    assert list(scratch.iterdir()) == []
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


def children_of(pid: int) -> list[int]:
    """The processes that it runs."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for file in files for one in file.read_text().split()]


KERNEL_SAMPLE = (
    "main (aerobee/cli/main.py:9);unrolled_run (trio/_core/_run.py:2);"
    "Selector.run (aerobee/remoting/server/selector.py:12)"
)


def test_a_flame_graph_has_functions_of_the_loop_without_places_of_the_machine() -> None:
    raw = [
        f"{KERNEL_SAMPLE};Send.one (/home/x/aerobee/broker/send/send.py:7) 60",
        f"{KERNEL_SAMPLE};Send.one (/home/x/aerobee/broker/send/send.py:9) 39",
        f"{KERNEL_SAMPLE};rare (aerobee/broker/a.py:1) 1",
        "main (a.py:1);unrolled_run (trio/_core/_run.py:2);get_events (trio/_core/_io.py:3) 500",
        "_bootstrap (threading.py:1);wait (threading.py:2) 500",
    ]
    stacks = flame.stacks_of(raw)
    selector = "Selector.run remoting.server.selector"
    assert stacks == {
        (selector, "Send.one broker.send.send"): 99,
        (selector, "rare broker.a"): 1,
    }
    drawn = flame.draw(stacks, "sends")
    assert "Send.one broker.send.send: 99.0%" in drawn
    assert "/home/x" not in drawn
    assert words_of(drawn)[:2] == ["sends", "Send.one broker.send.send"]


def test_servers_of_another_kind_have_a_table_of_their_own_and_no_targets() -> None:
    rows = [
        {
            "name": "produce 128 B, 64 × 1",
            "turns": {
                "aerobee": [{"rate": 20.0, "p99": 2.0, "cpu": 3.0}],
                "java": [{"rate": 10.0, "p99": 4.0, "cpu": 6.0}],
                "redis": [{"rate": 70.0, "p99": 1.0, "cpu": 1.0}],
            },
            "failure": "",
        }
    ]
    lines = list(tables.tables({"facts": {}, "rows": rows}))
    assert lines[lines.index("### Scale") + 2 :] == [
        "| work | Java | Aerobee | Redis | NATS |",
        "|---|---|---|---|---|",
        "| produce 128 B, 64 × 1: msgs/s | 10 | 20 | 70 | – |",
        "| produce 128 B, 64 × 1: p99 ms | 4 | 2 | 1 | – |",
        "| produce 128 B, 64 × 1: µs/msg | 6 | 3 | 1 | – |",
    ]


def test_a_stranger_is_held_to_no_target(tmp_path: Path) -> None:
    report = Report(tmp_path / "result.json", {})
    row = row_of([20_000], [10_000])
    row.add("redis", {"rate": 70_000})
    report.add(row)
    assert report.verdict() == "1 of 1 targets met, 0 rows without a figure"
