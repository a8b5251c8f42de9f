"""`aerobee config check` and `aerobee config convert`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.config import config


def run(command: str, file: Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(config, [command, str(file)])
    return done.exit_code, done.stdout, done.stderr


def test_a_check_prints_what_differs_and_why(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("flush_disk_type: SYNC_FLUSH\n")
    code, said, complained = run("check", file)
    assert (code, complained) == (0, "")
    assert "flush_disk_type: SYNC_FLUSH" in said
    assert f"{file}:1" in said


def test_every_problem_is_one_line_and_the_code_is_2(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("flush_disk_typ: SYNC_FLUSH\nlisten_port: many\n")
    code, said, complained = run("check", file)
    assert (code, said) == (2, "")
    assert [line.startswith(f"aerobee: {file}:") for line in complained.splitlines()] == [True] * 2


def test_a_check_without_a_file_shows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEROBEE_LISTEN_PORT", "20911")
    done = CliRunner().invoke(config, ["check"])
    assert done.exit_code == 0
    assert "listen_port: 20911    # environment: AEROBEE_LISTEN_PORT" in done.stdout


def test_widths_of_pools_that_nobody_set_are_shown_only_with_all(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("query_message_thread_pool_nums: 3\n")
    short = CliRunner().invoke(config, ["check", str(file)]).stdout
    assert [line for line in short.splitlines() if "thread_pool_nums" in line] == [
        f"query_message_thread_pool_nums: 3    # {file}:1"
    ]
    every = CliRunner().invoke(config, ["check", str(file), "--all"]).stdout
    assert "send_message_thread_pool_nums: " in every
    assert "trace_on: true    # default" in every


def test_a_file_of_rocketmq_becomes_yaml(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskType=SYNC_FLUSH\nlistenPort=10911\n")
    assert run("convert", file) == (0, "flush_disk_type: SYNC_FLUSH\nlisten_port: 10911\n", "")


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert run("check", tmp_path / "none.yaml")[0] == 2
