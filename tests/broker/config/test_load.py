"""The configuration as a whole: which source wins, and what stops the start."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.layers import environment_entries
from aerobee.broker.config.load import convert, load_config, read_file, some
from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.config.report import check_report, exported
from aerobee.cli.connection import PROFILE
from aerobee.store.config import FlushDiskType


def load(file: Path | None = None, **sources: Any) -> BrokerConfig:
    sources["environ"] = {"HOME": "/home/me"} | sources.get("environ", {})
    machine: dict[str, Any] = {"cpu_count": 4, "host_addresses": ["10.0.0.5"], "host_name": "box"}
    return load_config(file, **(machine | sources))


def problems(file: Path | None = None, **sources: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(file, **sources)
    return caught.value.problems


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def test_the_home_of_a_user_without_one_is_the_root_directory() -> None:
    config = load_config(None, environ={"HOME": "/"}, cpu_count=1, host_addresses=())
    assert config.store.store_path_root_dir == "/store"


def test_without_any_source_the_defaults_hold() -> None:
    config = load()
    assert config.remoting == BrokerConfig().remoting
    assert config.metrics == BrokerConfig().metrics
    assert config.broker.broker_name == "box"
    assert config.store.store_path_root_dir == "/home/me/store"
    assert config.warnings == ()
    assert config.sources == {}


def test_a_later_source_wins_over_an_earlier_one(write: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = write("b.yaml", f"store: {{store_path_root_dir: {data}, sync_flush_timeout: 1s}}")
    write("data/config/aerobee-overlay.yaml", "sync_flush_timeout: 3s")
    environ = {"AEROBEE_SYNC_FLUSH_TIMEOUT": "2s"}
    overrides = ["syncFlushTimeout=4s"]
    assert load(write("c.yaml", "sync_flush_timeout: 1s")).store.sync_flush_timeout_ms == 1_000
    assert load(file, environ=environ).store.sync_flush_timeout_ms == 3_000
    config = load(file, environ=environ, overrides=overrides)
    assert config.store.sync_flush_timeout_ms == 4_000
    assert config.sources["syncFlushTimeout"] == "command line: --set"
    assert config.sources["storePathRootDir"] == f"{file}:1"
    (data / "config" / "aerobee-overlay.yaml").unlink()
    assert load(file, environ=environ).store.sync_flush_timeout_ms == 2_000


def test_data_and_name_servers_have_short_options(tmp_path: Path) -> None:
    environ = {"AEROBEE_DATA": "/elsewhere", "NAMESRV_ADDR": "old:1"}
    config = load(environ=environ, data=tmp_path, namesrv="a:9876;b:9876")
    assert config.store.store_path_root_dir == str(tmp_path)
    assert config.broker.namesrv_addr == "a:9876;b:9876"
    assert config.namesrv.kv_config_path == f"{tmp_path}/config/kvConfig.json"
    assert load(environ=environ).broker.namesrv_addr == "old:1"


def test_the_file_of_runtime_changes_is_found_where_the_settings_say(write: Any) -> None:
    overlay = write("o.yaml", "trace_on: false")
    assert not load(overrides=[f"config_overlay_path={overlay}"]).broker.trace_on


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("bind_address: 0.0.0.0", "2: bind_address: can not change while running; left out"),
        ("no_such_thing: 1", "2: no_such_thing: no such setting; left out"),
        ("sync_flush_timeout: 1", "2: sync_flush_timeout: 1 is out of range (100–60000 ms); left"),
        ("enable_lmq: true", "2: enable_lmq: true asks for something"),
        ("disk_max_used_space_ratio: x", "2: disk_max_used_space_ratio: x is not a whole number"),
        ("a: [", "2: not YAML: expected"),
        ("- a", "2: not YAML: "),
        ("\x00\x01", " not YAML: "),
    ],
)
def test_no_start_fails_for_what_was_changed_in_an_earlier_run(
    write: Any, text: str, warning: str
) -> None:
    """A later version may not know a key, and somebody may have edited the file."""
    overlay = write("o.yaml", f"trace_on: false\n{text}")
    config = load(overrides=[f"config_overlay_path={overlay}"])
    assert any(f"{overlay}:{warning}" in said for said in config.warnings), config.warnings
    assert config.broker.trace_on is ("YAML" in warning), "the other lines count"
    assert not config.without_effect


def test_changes_that_cannot_be_read_are_taken_from_the_backup(write: Any) -> None:
    overlay = write("o.yaml", "a: [")
    write("o.yaml.bak", "trace_on: false")
    assert not load(overrides=[f"config_overlay_path={overlay}"]).broker.trace_on
    overlay.unlink()
    assert load(overrides=[f"config_overlay_path={overlay}"]).broker.trace_on, "so they are undone"
    overlay.mkdir()
    config = load(overrides=[f"config_overlay_path={overlay}"])
    assert not config.broker.trace_on
    assert config.warnings[0].startswith(f"{overlay}: Is a directory")


def test_a_change_that_clashes_with_what_the_file_says_by_now_is_left_out(write: Any) -> None:
    overlay = write("o.yaml", "trace_on: false\nmax_message_size: 8MiB\nforce_register: false")
    file = write("b.yaml", f"config_overlay_path: {overlay}\nmax_frame_bytes: 4194369")
    config = load(file, overrides=["max_message_size=4096"])
    assert config.store.max_message_size_bytes == 4096, "the command line wins"
    write("b.yaml", f"config_overlay_path: {overlay}\nmax_frame_bytes: 5MiB")
    config = load(file)
    assert config.store.max_message_size_bytes == 4 << 20
    assert (config.broker.trace_on, config.broker.force_register) == (False, False)
    assert config.warnings == (
        f"{overlay}:2: maxMessageSize: left out, for then maxMessageSize: messages of 8388608 bytes"
        " do not fit into a frame of maxFrameBytes, 5242880: raise that to 8454144 at least",
    )


def test_what_a_change_hides_or_does_not_reach_is_told(write: Any) -> None:
    overlay = write("o.yaml", "trace_on: false\ndelete_when: '05'\nfile_reserved_time: 48")
    file = write(
        "b.yaml", f"config_overlay_path: {overlay}\nfile_reserved_time: 2d\ndelete_when: 4"
    )
    config = load(file, overrides=["trace_on=true"])
    assert (config.broker.trace_on, config.store.delete_when) == (True, "05")
    assert config.warnings == (
        f"{overlay}:1: traceOn: does not count, the command line says otherwise",
        f"{file}:3: deleteWhen: does not count, it was changed while running ({overlay}:2)",
    )


def test_every_problem_of_every_source_is_told_at_once(write: Any) -> None:
    file = write("b.yaml", "broker_name: 0123\nflush_disc: 1")
    found = problems(
        file, environ={"AEROBEE_TRACE_ON": "maybe"}, overrides=["x", "brokerRole=SLAVE"]
    )
    assert found == (
        f'{file}:1: broker_name: a text is expected; quote it: "0123"',
        f"{file}:2: flush_disc: no such setting; did you mean flush_disk_type?",
        "environment: AEROBEE_TRACE_ON: maybe is neither true nor false",
        "command line: --set x: the form is key=value",
        "default: brokerId: a slave needs a number of its own from 1 on: 0 is the master, set"
        " brokerId: 1",
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "b.yaml"
    assert problems(missing) == (f"{missing}: No such file or directory",)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.5", "box"])
def test_a_listener_beyond_this_host_needs_credentials_or_insecure(address: str) -> None:
    (problem,) = problems(overrides=[f"bindAddress={address}"])
    assert "bindAddress" in problem
    assert "credentials" in problem
    assert "insecure: true" in problem
    opened = load(overrides=[f"bindAddress={address}", "insecure=true"])
    assert opened.remoting.bind_address == address
    assert opened.metrics.metrics_prom_exporter_host == address


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_a_listener_for_this_host_needs_neither(address: str) -> None:
    published = load(overrides=[f"bindAddress={address}"]).broker.broker_ip1
    assert published == ("127.0.0.1" if address == "localhost" else address)


def test_the_metrics_are_a_listener_too() -> None:
    (problem,) = problems(overrides=["metricsPromExporterHost=0.0.0.0"])
    assert problem.startswith("command line: --set: metricsPromExporterHost: 0.0.0.0 is open")
    off = ["metricsPromExporterHost=0.0.0.0", "metricsExporterType=DISABLE"]
    assert load(overrides=off).metrics.metrics_prom_exporter_host == "0.0.0.0"


def test_insecure_alone_opens_the_listeners() -> None:
    config = load(environ={"AEROBEE_INSECURE": "true"})
    assert config.remoting.bind_address == "0.0.0.0"
    assert config.broker.broker_ip1 == "10.0.0.5"


def test_inside_a_container_an_address_nobody_reaches_is_told_loudly() -> None:
    image = {"AEROBEE_IMAGE": "1", "AEROBEE_INSECURE": "true"}
    config = load(environ=image)
    assert config.in_image
    assert "set advertised_host" in config.warnings[0]
    assert load(environ=image | {"AEROBEE_ADVERTISED_HOST": "mq"}).warnings == ()


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["listenPort=9876"], "namesrvListenPort: 9876 is the port of listenPort already"),
        (["vipListenPort=10911"], "vipListenPort: 10911 is the port of listenPort"),
        (["metricsPromExporterPort=9876"], "9876 is the port of namesrvListenPort"),
        (["writeBufferLowWaterMark=8M"], "is above writeBufferHighWaterMark, 1048576: lower"),
        (["maxMessageSize=16MiB"], "maxFrameBytes, 16777216: raise that to 16842752"),
        (["maxFrameBytes=1MiB"], "do not fit into a frame of maxFrameBytes, 1048576"),
        (["maxIndexNum=100000000", "maxHashSlotNum=50000000"], "lower it, or maxHashSlotNum"),
        (["storePathCommitLog=/a,/b"], "several directories are not supported"),
        (["metricsExporterType=LOG"], "only PROM and DISABLE are there"),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(
    overrides: list[str], complaint: str
) -> None:
    (problem,) = problems(overrides=overrides)
    assert complaint in problem


def test_listeners_that_do_not_open_take_no_port() -> None:
    for other in ("namesrvListenPort=0", "embeddedNamesrv=false"):
        assert load(overrides=["listenPort=9876", other]).remoting.listen_port == 9_876


def test_settings_that_do_nothing_are_taken_with_a_warning() -> None:
    config = load(
        overrides=[
            "brokerId=3",
            "brokerRole=SYNC_MASTER",
            "haListenPort=1",
            "haMasterAddress=10.0.0.2:10912",
        ]
    )
    assert config.broker.broker_id == 0
    texts = " ".join(config.warnings)
    assert "a master has the id 0" in texts
    assert "SYNC_MASTER waits for nobody" in texts
    assert "haMasterAddress: only a slave copies a master, and brokerRole is SYNC_MASTER" in texts
    assert "haListenPort: without haPeers nobody may copy the log" in texts


def test_sends_wait_for_slaves_only_where_slaves_may_connect() -> None:
    synchronous = ["brokerRole=SYNC_MASTER", "inSyncReplicas=2"]
    with pytest.raises(ConfigurationError, match=r"inSyncReplicas: .* set haPeers"):
        load(overrides=synchronous)
    config = load(overrides=[*synchronous, "haPeers=10.0.0.2"])
    assert (config.needed_slaves, config.answers_wait, config.warnings) == (1, True, ())
    config = load(overrides=["inSyncReplicas=2", "haPeers=10.0.0.2"])
    assert (config.needed_slaves, config.answers_wait) == (0, False)
    assert "without brokerRole SYNC_MASTER no send waits" in config.warnings[0]


def test_a_slave_has_a_number_and_one_master() -> None:
    slave = ["brokerRole=SLAVE", "brokerId=1"]
    config = load(overrides=[*slave, "haMasterAddress=10.0.0.2:10912"])
    assert config.is_slave
    assert config.broker.broker_id == 1
    assert config.warnings == ()
    with pytest.raises(ConfigurationError, match="set namesrvAddr"):
        load(overrides=[*slave, "embeddedNamesrv=false"])
    with pytest.raises(ConfigurationError, match="is more than one address"):
        load(overrides=[*slave, "haMasterAddress=10.0.0.2:10912;10.0.0.3:10912"])
    with pytest.raises(ConfigurationError, match="several brokers have a master each"):
        load(overrides=[*slave, "haMasterAddress=10.0.0.2:10912", "brokers=2"])


def test_a_shadow_is_a_slave_that_is_told_whom_it_follows() -> None:
    slave = ["brokerRole=SLAVE", "brokerId=1", "shadow=true"]
    config = load(overrides=[*slave, "haMasterAddress=10.0.0.2:10912"])
    assert config.replication.shadow
    with pytest.raises(ConfigurationError, match="a shadow is told whom it follows"):
        load(overrides=slave)
    with pytest.raises(ConfigurationError, match="only a slave is a shadow"):
        load(overrides=["shadow=true"])


def test_a_tilde_is_a_directory_like_any_other_and_that_is_said() -> None:
    config = load(overrides=["storePathRootDir=~/data"])
    assert config.store.store_path_root_dir == "./~/data"
    assert config.namesrv.kv_config_path == "./~/data/config/kvConfig.json"
    assert "~ is not expanded" in config.warnings[0]


def test_a_limit_of_the_disk_may_be_the_space_to_keep_free() -> None:
    store = load(overrides=["diskSpaceWarningLevelRatio=20GiB"]).store
    assert store.disk_space_warning_level_free_bytes == 20 << 30
    assert store.disk_space_warning_level_ratio_percent == 90
    percent = load(overrides=["diskSpaceWarningLevelRatio=80%"]).store
    assert percent.disk_space_warning_level_free_bytes == 0
    assert percent.disk_space_warning_level_ratio_percent == 80


BUNDLED = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def test_the_file_of_a_java_broker_is_taken_as_it_is(write: Any) -> None:
    config = load(write("broker.conf", BUNDLED))
    assert config.broker.broker_name == "broker-a"
    assert config.store.file_reserved_time_h == 48
    assert config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert config.warnings == ()


def test_a_member_of_a_group_with_a_controller_is_told_what_it_lacks_and_what_is_weak() -> None:
    given = ["enableControllerMode=true", "controllerAddr=10.0.0.9:9878", "haPeers=10.0.0.2"]
    config = load(overrides=given)
    assert config.is_slave
    assert config.failover.is_on
    [warning] = config.warnings
    assert "a Java broker acknowledges as the master of this group can be lost" in warning
    weak = load(overrides=[*given, "minInSyncReplicas=1"]).warnings
    assert any("its machine takes them along" in text for text in weak)
    with pytest.raises(ConfigurationError, match=r"controllerAddr: .* needs the addresses"):
        load(overrides=[given[0], given[2]])
    for extra, reason in (
        ("etcdEndpoints=http://10.0.0.9:2379", "etcdEndpoints: .* has one that decides"),
        ("failoverMembers=1;2", "failoverMembers: the controller numbers the members"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            load(overrides=[*given, extra])


def test_a_file_that_java_wrote_back_keeps_what_means_nothing_here(write: Any) -> None:
    lines = BUNDLED + "syncFromLastFile=\ncoldDataFlowControlEnable=false\nkey.of.mine=1\n"
    config = load(write("broker.conf", lines))
    assert config.without_effect == {"syncFromLastFile": "", "coldDataFlowControlEnable": "false"}
    assert config.unknown == {"key.of.mine": "1"}
    assert config.warnings == ("kept, but nobody here knows them: key.of.mine",)
    assert exported(config)["key.of.mine"] == "1"


def test_what_is_asked_for_in_vain_is_said_once(write: Any) -> None:
    lines = BUNDLED + "allAckInSyncStateSet=true\ntotalReplicas=3\n"
    config = load(write("broker.conf", lines))
    assert config.warnings == (
        "kept, but without effect here: allAckInSyncStateSet, totalReplicas",
    )


def test_of_many_keys_without_effect_a_few_are_named() -> None:
    assert some(["b", "a"]) == "a, b"
    assert some([f"k{n:02}" for n in range(12)]).endswith("k09 and 2 more; config check shows all")


def test_what_is_exported_has_every_key_in_order_and_no_secret(write: Any) -> None:
    account = '{"accessKey":"broker","secretKey":"s3cret-word"}'
    secret = f"innerClientAuthenticationCredentials={account}\nflushDiskType=SYNC_FLUSH"
    values = exported(load(write("broker.conf", secret)))
    assert values["innerClientAuthenticationCredentials"] == "********"
    assert values["flushDiskType"] == "SYNC_FLUSH"
    assert values["traceOn"] == "true"
    assert values["mappedFileSizeConsumeQueue"] == "6000000"
    assert list(values) == sorted(values)


@pytest.mark.parametrize(
    "line",
    [
        "initauthenticationuser=admin:s3cret-word",
        "MetricsToken=s3cret-word",
        "tls.server.keyPassword=s3cret-word",
        "secretKey=s3cret-word",
        'initAuthenticationUsr={"username":"admin","password":"s3cret-word"}',
    ],
)
def test_a_secret_under_a_key_that_counts_for_nothing_is_not_exported(
    write: Any, line: str
) -> None:
    config = load(write("broker.conf", line))
    name = line.partition("=")[0]
    assert "s3cret-word" in config.unknown[name]
    assert exported(config)[name] == "********"


def test_tls_is_also_set_by_a_file_of_rocketmq(write: Any) -> None:
    theirs = write(
        "tls.properties",
        "tls.test.mode.enable=false\ntls.server.need.client.auth=require\n"
        "tls.server.keyPath=/k.pem\ntls.server.keyPassword=sesame\ntls.server.certPath=/c.pem\n"
        "tls.server.trustCertPath=/ca.pem\ntls.client.keyPath=/x\n",
    )
    ours = ("tlsServerCertPath=/other.pem", "tlsServerMode=enforcing")
    config = load(None, overrides=[f"tlsConfigFile={theirs}", *ours])
    tls = config.tls
    assert (tls.tls_server_cert_path, tls.tls_server_key_path) == ("/other.pem", "/k.pem")
    assert (tls.tls_server_key_password, tls.tls_server_need_client_auth) == ("sesame", "require")
    assert "sesame" not in check_report(config, every=True)
    assert exported(config)["tlsServerKeyPassword"] == "********"
    with pytest.raises(ConfigurationError, match=r"tlsConfigFile: /none: No such file"):
        load(None, overrides=["tlsConfigFile=/none"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tlsServerMode=enforcing", "enforcing needs a certificate: set tlsServerCertPath"),
        ("tlsServerKeyPath=/k.pem", "a key without a certificate: set tlsServerCertPath"),
        ("tlsServerNeedClientAuth=optional", "optional needs the certificates of the CAs"),
    ],
)
def test_tls_that_lacks_a_file_is_refused(given: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load(None, overrides=[given])


@pytest.mark.parametrize("mode", ["permissive", "disabled", None])
def test_certificates_of_clients_that_a_plain_connection_avoids_are_refused(
    mode: str | None,
) -> None:
    files = ["tlsServerCertPath=/c.pem", "tlsServerTrustCertPath=/ca.pem"]
    given = [*files, *([f"tlsServerMode={mode}"] if mode else [])]
    told = f"require needs tlsServerMode: enforcing: with {mode or 'permissive'} a connection"
    with pytest.raises(ConfigurationError, match=told):
        load(None, overrides=[*given, "tlsServerNeedClientAuth=require"])
    optional = load(None, overrides=[*given, "tlsServerNeedClientAuth=optional"])
    assert optional.tls.tls_server_need_client_auth == "optional"


def test_the_report_says_what_differs_and_where_it_comes_from(write: Any) -> None:
    file = write("b.conf", "flushDiskType=SYNC_FLUSH\ntraceOn=true\nfoo=1\nsocksProxyConfig={}\n")
    report = check_report(load(file, overrides=["diskMaxUsedSpaceRatio=1536M"])).splitlines()
    assert f"flush_disk_type: SYNC_FLUSH    # {file}:1" in report
    assert "disk_max_used_space_ratio: 1536MiB    # command line: --set" in report
    assert "broker_name: box    # derived" in report
    assert not [line for line in report if line.startswith("trace_on")]
    assert report[-2:] == ["kept, without effect: socksProxyConfig", "kept, unknown: foo"]


def test_a_file_survives_the_way_to_the_other_form_and_back(write: Any) -> None:
    text = "brokerName=0123\ndeleteWhen=04\nflushDiskType=SYNC_FLUSH\nlistenPort=20911\n"
    text += "socksProxyConfig=5\n"
    as_yaml = convert(write("b.conf", text + "foo=a b\n"))
    assert as_yaml.splitlines() == [
        "broker_name: '0123'",
        "delete_when: '04'",
        "flush_disk_type: SYNC_FLUSH",
        "listen_port: 20911",
        "socks_proxy_config: '5'    # without effect",
        "# unknown here: foo=a b",
    ]
    assert convert(write("b.yaml", as_yaml)) == text


def test_space_to_keep_free_cannot_be_said_in_a_rocketmq_file(write: Any) -> None:
    text = convert(write("b.yaml", "disk_max_used_space_ratio: 20GiB"))
    assert text.startswith("# diskMaxUsedSpaceRatio: a RocketMQ file cannot say 20GiB")


def test_a_wrong_file_is_not_converted(write: Any) -> None:
    with pytest.raises(ConfigurationError, match="no such setting"):
        convert(write("b.yaml", "zzzzzz: 1"))


def test_the_example_files_are_taken(request: pytest.FixtureRequest) -> None:
    conf = Path(request.config.rootpath) / "conf"
    assert load(conf / "broker-sync.yaml").store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    example, bare = load(conf / "broker.yaml"), load(overrides=[f"aclConfigDir={conf}"])
    assert replace(bare, sources={}) == example


@pytest.mark.parametrize("name", ["broker", "broker.conf", "broker.yaml.new"])
def test_a_yaml_file_of_another_ending_is_not_read_as_properties(tmp_path: Path, name: str) -> None:
    """Its sections would be keys that nobody knows, and the defaults would count in silence."""
    file = tmp_path / name
    file.write_text("# of the shop\nremoting:  # ports\n\n  # the broker's\n  listen_port: 20911\n")
    with pytest.raises(ConfigurationError, match=f"it is YAML: name it {re.escape(name)}.yaml"):
        read_file(file)
    file.write_text("listenPort: 20911\nbrokerName:\n  flushDiskType=SYNC_FLUSH\n")
    assert next(entry.name for entry in read_file(file)) == "listenPort"


def test_variables_of_commands_are_no_settings_that_nobody_knows() -> None:
    names = (*PROFILE[1:], "context", "user_secret")
    environ = {f"AEROBEE_{name.upper()}": "x" for name in names}
    assert environment_entries(environ) == ([], [])
