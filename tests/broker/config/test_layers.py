"""One source of settings: which keys it means, and what is said about the others."""

from __future__ import annotations

import pytest

from aerobee.broker.config.files.entries import Form, Scalar
from aerobee.broker.config.files.properties_file import read_properties
from aerobee.broker.config.files.yaml_file import read_yaml
from aerobee.broker.config.layers import Layer, command_line_entries, environment_entries, take


def yaml(text: str) -> Layer:
    return take(read_yaml(text.encode(), "b.yaml"))


def java(text: str) -> Layer:
    return take(read_properties(text.encode(), "b.conf"))


def values(layer: Layer) -> dict[str, object]:
    return {name: setting.value for name, setting in layer.settings.items()}


@pytest.mark.parametrize(
    "spelling",
    ["flush_disk_type", "flushDiskType", "flush-disk-type", "FLUSHDISKTYPE", "flush_Disk_type"],
)
def test_any_spelling_will_do_in_yaml(spelling: str) -> None:
    assert values(yaml(f"{spelling}: SYNC_FLUSH")) == {"flushdisktype": "SYNC_FLUSH"}


def test_an_unknown_key_in_yaml_is_a_problem_with_the_nearest_name() -> None:
    layer = yaml("store:\n  flush_disc_type: SYNC_FLUSH\nzzzzzz: 1")
    assert layer.problems == [
        "b.yaml:2: flush_disc_type: no such setting; did you mean flush_disk_type?",
        "b.yaml:3: zzzzzz: no such setting",
    ]


def test_null_is_the_same_as_nothing() -> None:
    assert yaml("flush_disk_type:\nzzzzzz: ~") == Layer()


def test_the_same_key_twice_is_a_problem_however_it_is_spelled() -> None:
    layer = yaml("trace_on: true\nbroker:\n  traceOn: true")
    assert layer.problems == ["b.yaml:3: traceOn: set a second time; the first is b.yaml:1"]


def test_the_listen_port_of_the_name_server_is_its_own() -> None:
    layer = yaml("listen_port: 1\nnamesrv:\n  listen_port: 2\n  order_message_enable: true")
    assert values(layer) == {
        "listenport": 1,
        "namesrvlistenport": 2,
        "ordermessageenable": True,
    }


def test_network_settings_are_refused_under_the_name_server() -> None:
    layer = yaml("namesrv:\n  server_selector_threads: 3")
    assert layer.problems == [
        "b.yaml:2: server_selector_threads: the network settings exist once; write it outside"
        " `namesrv`"
    ]


def test_all_problems_are_found_in_one_go() -> None:
    layer = yaml("sync_flush_timeout: 5B\nfile_reserved_time: x\nzzzzzz: 1")
    assert [problem.split(":")[1] for problem in layer.problems] == ["1", "2", "3"]


def test_a_known_key_without_effect_is_kept_in_both_kinds_of_file() -> None:
    assert yaml("cold_data_flow_control_enable: true").without_effect == {
        "coldDataFlowControlEnable": "true"
    }
    assert java("syncFromLastFile=\ncompressedRegister=true").without_effect == {
        "syncFromLastFile": "",
        "compressedRegister": "true",
    }


@pytest.mark.parametrize(
    "line",
    [
        "enableDLegerCommitLog=true",
        "duplicationEnable=true",
        "enableLmq=true",
        "enableMultiDispatch=true",
        "storeType=defaultRocksDB",
        "timerRocksDBEnable=true",
        "transRocksDBEnable=true",
        "indexRocksDBEnable=true",
    ],
)
def test_a_value_that_asks_for_what_is_not_done_is_refused(line: str) -> None:
    problem = java(f"a=b\n{line}").problems[0]
    assert problem.startswith(f"b.conf:2: {line.partition('=')[0]}: ")
    assert problem.endswith("asks for something that this broker does not do")
    assert java(line.replace("true", "false").replace("=defaultRocksDB", "=default")).problems == []


@pytest.mark.parametrize("key", ["enableSlaveActingMaster", "enableRemoteEscape"])
def test_a_slave_that_is_to_act_as_master_is_refused_with_what_there_is(key: str) -> None:
    (problem,) = java(f"{key}=true").problems
    assert "`aerobee ha promote`" in problem
    assert java(f"{key}=false").problems == []


def test_a_setting_of_ours_that_is_not_there_yet_is_refused_not_ignored() -> None:
    assert yaml("proxy_protocol_from: ''").problems == []
    assert "does not do" in yaml("proxy_protocol_from: 10.0.0.0/8").problems[0]


def test_a_mode_of_tls_is_read_in_any_case_and_another_word_is_refused() -> None:
    assert yaml("tls_server_mode: ENFORCING").settings["tlsservermode"].value == "enforcing"
    assert yaml("tls:\n  tls_server_mode: disabled").settings["tlsservermode"].value == "disabled"
    assert java("tlsServerMode=permissive").settings["tlsservermode"].value == "permissive"
    [problem] = yaml("tls_server_mode: strict").problems
    assert problem.endswith("strict is none of disabled, permissive, enforcing")


def test_an_unknown_key_in_a_rocketmq_file_is_kept() -> None:
    layer = java("my.own.key=5\nbrokerId=0")
    assert layer.unknown == {"my.own.key": "5"}
    assert layer.problems == layer.warnings == []


def test_a_key_that_rocketmq_ignores_for_its_spelling_is_ignored_with_a_warning() -> None:
    layer = java("brokerip1=1.2.3.4\ncoldctrstrategyenable=true")
    assert layer.settings == {}
    assert layer.warnings[0] == (
        "b.conf:1: brokerip1: ignored, as RocketMQ does; the key is spelled brokerIP1"
    )


def test_the_last_of_two_lines_wins_in_a_rocketmq_file() -> None:
    assert values(java("listenPort=1\nlistenPort=2")) == {"listenport": 2}


def test_a_wrong_value_in_a_rocketmq_file_is_told_with_what_java_would_have_used() -> None:
    assert java("fileReservedTime=48h").problems == [
        "b.conf:1: fileReservedTime: 48h is not a whole number (units are for YAML);"
        " RocketMQ would silently use its default 72"
    ]
    (problem,) = java("fileReservedTime=" + "9" * 5_000).problems
    assert problem.endswith("RocketMQ would silently use its default 72")
    (problem,) = java("brokerName=").problems
    assert problem.endswith("; RocketMQ would silently use an empty value")


def test_blanks_behind_a_number_are_taken_with_a_warning() -> None:
    layer = java("listenPort=10911 \nbrokerName=a ")
    assert values(layer) == {"listenport": 10_911, "brokername": "a"}
    assert layer.warnings == [
        "b.conf:1: listenPort: has blanks around its value, for which RocketMQ ignores the line"
    ]


def test_an_empty_value_where_rocketmq_has_none_leaves_the_default() -> None:
    assert java("brokerIP1=\nkvConfigPath=").settings == {}


def test_the_file_of_runtime_changes_holds_only_what_may_change() -> None:
    entries = read_yaml(b"trace_on: false\nstore_path_root_dir: /etc", "o.yaml")
    layer = take(entries, only_live=True)
    assert values(layer) == {"traceon": False}
    assert layer.problems == ["o.yaml:2: store_path_root_dir: can not change while running"]


def test_the_environment_names_keys_in_capitals_and_has_two_short_forms() -> None:
    entries, warnings = environment_entries(
        {
            "AEROBEE_FLUSH_DISK_TYPE": "SYNC_FLUSH",
            "AEROBEE_DATA": "/data",
            "NAMESRV_ADDR": "a:9876",
            "AEROBEE_IMAGE": "1",
            "AEROBEE_TEST_JAVA": "x",
            "PATH": "/bin",
            "ROCKETMQ_HOME": "/x",
        }
    )
    assert warnings == []
    assert values(take(entries)) == {
        "flushdisktype": "SYNC_FLUSH",
        "storepathrootdir": "/data",
        "namesrvaddr": "a:9876",
    }


def test_an_unknown_variable_of_ours_is_only_a_warning() -> None:
    entries, warnings = environment_entries({"AEROBEE_INSECUR": "true", "NAMESRV_ADDR": " "})
    assert entries == []
    assert warnings == [
        "environment: AEROBEE_INSECUR: no such setting; did you mean AEROBEE_INSECURE?"
    ]


def test_two_spellings_of_one_key_may_agree_but_not_differ() -> None:
    same, _ = environment_entries({"AEROBEE_DATA": "/a", "AEROBEE_STORE_PATH_ROOT_DIR": "/a"})
    assert take(same).problems == []
    other, _ = environment_entries({"AEROBEE_DATA": "/a", "AEROBEE_STORE_PATH_ROOT_DIR": "/b"})
    assert "set a second time" in take(other).problems[0]


def test_the_command_line_says_key_and_value() -> None:
    entries, problems = command_line_entries(["traceOn=false", "oops"], "a:1;b:2", "./data")
    assert problems == ["command line: --set oops: the form is key=value"]
    assert all(entry.form is Form.TEXT for entry in entries)
    assert values(take(entries)) == {
        "traceon": False,
        "namesrvaddr": "a:1;b:2",
        "storepathrootdir": "./data",
    }


def test_a_value_on_the_command_line_may_hold_an_equals_sign() -> None:
    entries, _ = command_line_entries(["advertised=10.0.0.0/8=a"], None, None)
    assert entries[0].value == Scalar("10.0.0.0/8=a", "str")
