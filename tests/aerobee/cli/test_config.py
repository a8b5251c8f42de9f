"""`aerobee config check`, `explain`, `diff` and `convert`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.blocking import AdminClient
from aerobee.broker.config.schema import SCHEMA
from aerobee.cli.config import config
from tests.kit.broker_process import BrokerProcess


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


def explain(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(config, ["explain", *words])
    return done.exit_code, done.output


def test_a_setting_is_explained_with_its_value_and_where_that_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("flush_disk_type: SYNC_FLUSH\nfile_reserved_time: 2d\n")
    code, said = explain("fileReservedTime", "flush-disk-type", "-c", str(file), "--json")
    assert code == 0
    first, second = json.loads(said)
    assert first == {
        "key": "file_reserved_time",
        "rocketmq_key": "fileReservedTime",
        "about": "The store",
        "effect": "How long a commit-log file is kept after its last change.",
        "type": "whole number",
        "unit": "h",
        "default": "72",
        "values": "1\N{EN DASH}8760 h",
        "changes": "while running",
        "value": "48",
        "source": f"{file}:2",
    }
    assert (second["value"], second["changes"]) == ("SYNC_FLUSH", "with a restart")
    code, said = explain("send_message_thread_pool_nums")
    assert code == 0
    assert "CPUs" in said


def test_a_key_without_effect_is_explained_with_the_reason() -> None:
    code, said = explain("transientStorePoolEnable")
    assert (code, "Without effect: appends go to the page cache" in said) == (0, True)
    code, said = explain("enableDLegerCommitLog")
    assert (code, "replication and failover have settings of their own" in said) == (0, True)


def test_a_key_that_does_not_exist_is_told_with_what_was_meant() -> None:
    code, said = explain("flush_disc_type")
    assert code == 2
    assert "no such setting: flush_disc_type; did you mean flush_disk_type?" in said


def test_every_setting_is_explained() -> None:
    code, said = explain(*(key.name for key in SCHEMA.values()), "--json")
    assert code == 0
    for row in json.loads(said):
        assert all(row[name] for name in ("key", "effect", "type", "default", "changes")) or (
            row["default"] == ""
        )


def test_a_file_is_compared_with_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("flush_disk_type: SYNC_FLUSH\n")
    done = CliRunner().invoke(config, ["diff", "-c", str(file), "--json"])
    assert done.exit_code == 0
    assert {
        "key": "flush_disk_type",
        "default": "ASYNC_FLUSH",
        "value": "SYNC_FLUSH",
        "source": f"{file}:1",
    } in json.loads(done.output)
    assert "trace_on" not in done.output


def test_a_comparison_knows_the_data_directory_of_the_start(tmp_path: Path) -> None:
    done = CliRunner().invoke(config, ["diff", "--data", str(tmp_path), "--json"])
    (row,) = (row for row in json.loads(done.output) if row["key"] == "store_path_root_dir")
    assert (row["value"], row["source"]) == (str(tmp_path), "command line: --data")


@pytest.mark.service
def test_a_file_is_compared_with_a_running_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("flush_disk_type: SYNC_FLUSH\nfile_reserved_time: 2d\nbroker_name: one\n")
    settings = {"brokerName": "one"}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as running:
        names = running.namesrv_address
        monkeypatch.setenv("NAMESRV_ADDR", names)
        words = ["diff", "-c", str(file), "--broker", "one", "--json"]
        done = CliRunner().invoke(config, words)
        assert done.exit_code == 1
        rows = {row["key"]: row for row in json.loads(done.output)}
        assert rows["file_reserved_time"] == {
            "key": "file_reserved_time",
            "running": "72",
            "configured": "48",
            "source": f"{file}:2",
            "takes": "SIGHUP",
        }
        assert rows["flush_disk_type"]["takes"] == "restart"
        assert not {"broker_name", "namesrv_addr", "metrics_token"} & rows.keys()
        with AdminClient(names) as admin:
            admin.update_broker_config({"fileReservedTime": "48"}, "one")
        done = CliRunner().invoke(config, words)
        assert "file_reserved_time" not in {row["key"] for row in json.loads(done.output)}
