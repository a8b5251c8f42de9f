"""A name server that runs alone: its line, its files, its neighbours, its stop."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aerobee.blocking import Message, Producer
from tests.aerobee.cli.conftest import command
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST, free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

pytestmark = pytest.mark.ours

UPDATE, GET = 318, 319
PUT_KV, GET_KV, ROUTE, CLUSTER_INFO, SEND = 100, 101, 105, 106, 310
NOT_SUPPORTED, NO_ROUTE = 3, 17
ENTRY: dict[str, object] = {"namespace": "n", "key": "k"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamesrvProcess]:
    data = tmp_path_factory.mktemp("names") / "data"
    with NamesrvProcess(data=data, metrics_port=free_port()) as running:
        yield running


def knows(names: NamesrvProcess, broker: BrokerProcess) -> bool:
    with RawConnection(names.address) as connection:
        return broker.address.encode() in connection.call(CLUSTER_INFO).body


def expect_known(names: NamesrvProcess, broker: BrokerProcess, *, within_s: float) -> None:
    eventually(lambda: knows(names, broker), within_s=within_s, what="the broker registers")


def test_it_says_where_it_serves(names: NamesrvProcess) -> None:
    line = rf"aerobee ready namesrv={names.address} data={names.data} in [\d.]+ s"
    assert re.fullmatch(line, names.ready)


def test_it_is_a_name_server_and_no_broker(names: NamesrvProcess) -> None:
    with RawConnection(names.address) as connection:
        assert connection.call(ROUTE, {"topic": "TBW102"}).code == NO_ROUTE
        assert connection.call(SEND, {"b": "T"}, b"x").code == NOT_SUPPORTED


def test_a_value_outlives_a_kill_once_it_was_answered(tmp_path: Path) -> None:
    with NamesrvProcess(data=tmp_path / "data") as running:
        with RawConnection(running.address) as connection:
            assert connection.call(PUT_KV, {**ENTRY, "value": "v"}).code == 0
        running.kill()
        running.start()
        with RawConnection(running.address) as connection:
            assert connection.call(GET_KV, ENTRY).ext == {"value": "v"}
        assert running.stop() == 0


def test_its_settings_are_told_and_change_by_request_and_by_signal(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("returnOrderTopicConfigToBroker=true\n")
    with (
        NamesrvProcess(data=tmp_path / "data", file=file) as running,
        RawConnection(running.address) as connection,
    ):
        told = connection.call(GET).body.decode()
        assert f"listenPort={running.port}\n" in told
        assert connection.call(UPDATE, body=b"orderMessageEnable=true").code == 0
        assert b"orderMessageEnable=true" in connection.call(GET).body
        file.write_text("returnOrderTopicConfigToBroker=false\n")
        running.child.signal(signal.SIGHUP)
        changed = b"returnOrderTopicConfigToBroker=false"
        eventually(
            lambda: changed in connection.call(GET).body, within_s=30, what="it is read again"
        )
        assert b"orderMessageEnable=true" in connection.call(GET).body


def test_a_second_one_on_the_same_directory_is_refused(
    names: NamesrvProcess, tmp_path: Path
) -> None:
    with pytest.raises(DidNotStart) as refused:
        NamesrvProcess(data=names.data).start()
    assert refused.value.exit_code == 3
    assert "--data" in str(refused.value)
    with pytest.raises(DidNotStart) as refused:
        NamesrvProcess(data=tmp_path / "other", port=names.port).start()
    assert refused.value.exit_code == 1
    assert "--port" in str(refused.value)
    assert f"(pid {names.child.pid}); stop that, or give" in str(refused.value)


def test_a_directory_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """With exit code 3, for which systemd does not start it again and again."""
    (tmp_path / "link").symlink_to("not mounted")
    with pytest.raises(DidNotStart, match="mount or make") as refused:
        NamesrvProcess(data=tmp_path / "link").start()
    assert refused.value.exit_code == 3


def test_it_answers_its_probes(names: NamesrvProcess) -> None:
    for probe in ("startupz", "livez", "readyz"):
        words = ("healthcheck", "--probe", probe, "--port", str(names.metrics_port))
        asked = command(*words, "--host", HOST)
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (
            0,
            f"{probe} of 127.0.0.1:{names.metrics_port}: ok\n",
        )


def test_its_metrics_count_brokers_topics_and_requests(
    names: NamesrvProcess, tmp_path: Path
) -> None:
    settings = {"embeddedNamesrv": "false"}
    with (
        BrokerProcess(data=tmp_path / "b", namesrv=names.address, settings=settings) as broker,
        RawConnection(names.address) as connection,
    ):
        expect_known(names, broker, within_s=30)
        assert connection.call(ROUTE, {"topic": "none"}).code == NO_ROUTE
        url = f"http://{HOST}:{names.metrics_port}/metrics"
        samples = [
            sample
            for family in text_string_to_metric_families(httpx.get(url).text)
            for sample in family.samples
        ]
    values = {sample.name: sample.value for sample in samples}
    assert {sample.labels["node_type"] for sample in samples if "node_type" in sample.labels} == {
        "nameserver"
    }
    assert values["aerobee_namesrv_brokers"] == 1
    assert values["aerobee_namesrv_topics"] > 0
    assert values["aerobee_connections"] >= 2
    answered = {
        (sample.labels["request_code"], sample.labels["response_code"]): sample.value
        for sample in samples
        if sample.name == "rocketmq_rpc_latency_milliseconds_count"
    }
    assert answered["register_broker", "success"] >= 1
    assert answered["get_routeinfo_by_topic", "topic_not_exist"] >= 1
    assert "rocketmq_messages_in_total" not in values


def test_a_broker_registers_with_all_of_them_and_one_that_is_down_delays_nobody(
    names: NamesrvProcess, tmp_path: Path
) -> None:
    down = f"{HOST}:{free_port()}"
    with NamesrvProcess(data=tmp_path / "second") as second:
        servers = f"{down};{names.address};{second.address}"
        settings = {"embeddedNamesrv": "false"}
        with BrokerProcess(data=tmp_path / "b", namesrv=servers, settings=settings) as broker:
            for server in (names, second):
                expect_known(server, broker, within_s=30)
            # One that comes back with nothing, and one that was never there.
            second.kill()
            second.start()
            port = int(down.rpartition(":")[2])
            with NamesrvProcess(data=tmp_path / "late", port=port) as late:
                for server in (second, late):
                    expect_known(server, broker, within_s=15)
            assert broker.stop() == 0
            assert not knows(names, broker)
            assert not knows(second, broker)


def test_each_client_is_told_the_address_that_it_can_reach(tmp_path: Path) -> None:
    settings = {
        "bindAddress": "::",
        "insecure": "true",
        "advertised": "127.0.0.1/32=v4.lan:7;10.0.0.0/8=never",
    }
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        port = broker.ports.listen
        assert broker.ready is not None
        assert broker.ready.broker == f"[::]:{port}"
        told = {HOST: "v4.lan:7", "::1": f"[::1]:{port}"}
        for host, address in told.items():
            with RawConnection(f"{host}:{broker.namesrv_port}") as connection:
                assert address.encode() in connection.call(CLUSTER_INFO).body
        with Producer(f"[::1]:{broker.namesrv_port}") as producer:
            assert producer.send(Message("T", b"over IPv6")).queue.queue_id >= 0


def test_a_container_without_an_address_for_clients_says_so(tmp_path: Path) -> None:
    open_to_all = {"bindAddress": "0.0.0.0", "insecure": "true"}
    inside = {"container": "podman"}
    with BrokerProcess(data=tmp_path / "data", settings=open_to_all, env=inside) as broker:
        pass
    told = [one for one in events(broker.log.read_text()) if one["event"] == "config.warning"]
    assert len(told) == 1
    assert "AEROBEE_ADVERTISED_HOST" in told[0]["text"]
