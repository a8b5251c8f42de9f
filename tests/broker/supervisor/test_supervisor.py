"""Several brokers of one configuration: the real processes, seen by clients and operators (K1)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from aerobee.blocking import AdminClient, Credentials, Message, Producer
from aerobee.cli.border import exit_code_of
from aerobee.cli.main import run
from aerobee.errors import AccessDeniedError, AerobeeError
from tests.broker.process.test_service_manager import Systemd
from tests.kit.health import events, metrics_of, rss_anon
from tests.kit.process import DidNotStart
from tests.kit.supervised import Supervised
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ours

ROOT = Path(__file__).parents[3]
TOPIC = "Orders"
MiB = 1 << 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """Two brokers with a topic on both."""
    data = tmp_path_factory.mktemp("many") / "data"
    with Supervised(data=data) as running:
        with AdminClient(running.namesrv_address) as admin:
            admin.create_topic(TOPIC, queues=4)
        yield running


@dataclass(slots=True, kw_only=True)
class Configured(Supervised):
    """With a configuration file."""

    file: Path

    def command(self) -> list[str]:
        """The command line of a run."""
        return [*Supervised.command(self), "-c", str(self.file)]


def stored(whole: Supervised, count: int) -> Counter[str]:
    """Broker → how many of so many messages it has taken."""
    with Producer(whole.namesrv_address, group="shop") as producer:
        sent = [producer.send(Message(TOPIC, b"%d" % n)) for n in range(count)]
    return Counter(one.queue.broker_name for one in sent)


def test_a_producer_spreads_over_all_brokers(whole: Supervised) -> None:
    assert whole.ready is not None
    assert whole.ready.recovered == "2 of 2 brokers"
    with AdminClient(whole.namesrv_address) as admin:
        brokers = admin.cluster_info().brokers
        assert {one.name: one.address for one in brokers} == {
            f"b-{n}": f"127.0.0.1:{whole.ports.listen + 10 * n}" for n in range(2)
        }
    assert set(stored(whole, 32)) == {"b-0", "b-1"}


def test_a_key_keeps_its_broker_and_queue(whole: Supervised) -> None:
    with Producer(whole.namesrv_address, group="shop") as producer:
        for key in ("anna", "bert", "carl", "dora"):
            queues = {producer.send(Message(TOPIC, b"x", ordering_key=key)).queue for _ in range(8)}
            assert len(queues) == 1, key


def test_a_topic_made_by_use_is_on_both(whole: Supervised) -> None:
    with Producer(whole.namesrv_address, group="shop") as producer:
        for _ in range(64):
            producer.send(Message("ByUse", b"x"))
    with AdminClient(whole.namesrv_address) as admin:
        assert {one.broker for one in admin.topic_configs("ByUse")} == {"b-0", "b-1"}


def test_one_scrape_has_the_metrics_of_all(whole: Supervised) -> None:
    samples = list(metrics_of(whole))
    assert len({(name, *sorted(labels.items())) for name, labels, _ in samples}) == len(samples)
    nodes = {labels["node_id"] for _, labels, _ in samples if "node_id" in labels}
    assert nodes == {"b", "b-0", "b-1"}
    up = {labels["broker"]: value for name, labels, value in samples if name == "aerobee_broker_up"}
    assert up == {"b-0": 1, "b-1": 1}
    url = f"http://127.0.0.1:{whole.ports.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    heads = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "a family is told once"


def test_one_health_answer_names_each_broker(whole: Supervised) -> None:
    assert whole.health() == {
        "code": 200,
        "status": "ok",
        "checks": {"namesrv": "ok", "b-0": "ok", "b-1": "ok"},
    }
    assert whole.health("livez")["code"] == whole.health("startupz")["code"] == 200


def test_each_line_of_the_one_log_names_its_broker(whole: Supervised) -> None:
    told = list(events(whole.log.read_text()))
    started = [one["broker_name"] for one in told if one["event"] == "broker.started"]
    assert set(started) == {"b-0", "b-1"}
    assert any(one["event"] == "supervisor.started" for one in told)


def test_the_supervisor_is_small(tmp_path: Path) -> None:
    # As users start it: a fork of the tests has in memory what that has imported.
    with Supervised(data=tmp_path / "data", env={"PYTHONHASHSEED": "0"}) as one:
        assert rss_anon(one.child.pid) < 45 * MiB


def test_a_signal_reaches_all(whole: Supervised) -> None:
    os.kill(whole.child.pid, signal.SIGHUP)

    def reloaded() -> bool:
        told = [one for one in events(whole.log.read_text()) if one["event"] == "config.reloaded"]
        return {one.get("broker_name") for one in told} >= {None, "b-0", "b-1"}

    eventually(reloaded, within_s=30, what="all have read their settings again")


def test_a_killed_broker_comes_back_while_the_other_serves(whole: Supervised) -> None:
    acknowledged: set[bytes] = set()
    before = whole.pids()
    with Producer(whole.namesrv_address, group="killed", request_timeout=1.0) as producer:
        for n in range(600):
            body = b"kill %d" % n
            try:
                producer.send(Message("Kills", body))
            except AerobeeError:
                continue
            acknowledged.add(body)
            if n == 200:
                os.kill(before["b-1"], signal.SIGKILL)
    assert len(acknowledged) > 400, "the other broker serves on"
    whole.await_ready()
    after = whole.pids()
    assert after["b-0"] == before["b-0"]
    assert after["b-1"] != before["b-1"]
    ended = [one for one in events(whole.log.read_text()) if one["event"] == "member.ended"]
    assert [(one["broker_name"], one["exit_code"]) for one in ended] == [("b-1", -9)]
    restarts = {
        labels["broker"]: value
        for name, labels, value in metrics_of(whole)
        if name == "aerobee_broker_restarts_total"
    }
    assert restarts == {"b-0": 0, "b-1": 1}
    assert bodies(whole, "Kills") >= acknowledged


def bodies(whole: Supervised, topic: str) -> set[bytes]:
    """All messages of a topic."""
    with AdminClient(whole.namesrv_address) as admin:
        return {bytes(one.body) for one in admin.find_messages(topic, max_messages=100_000)}


def test_the_commands_of_the_page_work(
    whole: Supervised, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/operations/many-cores.md."""
    monkeypatch.setenv("NAMESRV_ADDR", whole.namesrv_address)
    monkeypatch.setenv("AEROBEE_METRICS_PROM_EXPORTER_PORT", str(whole.ports.metrics))
    monkeypatch.chdir(whole.data.parent)
    page = (ROOT / "docs/operations/many-cores.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    commands = "".join(blocks).splitlines()
    assert len(commands) > 6
    for command in commands:
        assert code_of(command) == 0, (command, capsys.readouterr())
    told = capsys.readouterr().out
    assert re.search(r"readyz of 127\.0\.0\.1:\d+: ok", told)
    with AdminClient() as admin:
        settings = [admin.broker_config(f"b-{n}") for n in range(2)]
        assert [one["deleteWhen"] for one in settings] == ["05", "05"]
        assert [one["logLevel"] for one in settings] == ["INFO", "DEBUG"]
        admin.set_write_permission("b-1", True)


def code_of(command: str) -> object:
    """The exit code of a command of ours."""
    try:
        return exit_code_of(run, command.split()[1:])
    except SystemExit as end:
        return end.code


def test_a_store_command_looks_into_the_store_of_each_broker(
    whole: Supervised, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(f"aerobee store verify {whole.data}") == 0
    printed = capsys.readouterr()
    for number in (0, 1):
        assert str(whole.data / f"broker-{number}") in printed.out + printed.err


# ── stops and starts ──


def test_a_start_a_stop_and_a_start_again_keep_everything(tmp_path: Path) -> None:
    whole = Supervised(data=tmp_path / "data")
    with whole:
        assert stored(whole, 20)
        kept = bodies(whole, TOPIC)
        assert whole.stop() == 0
        happened = {event["event"] for event in events(whole.log.read_text())}
        assert "broker.stop_given_up" not in happened
        whole.start()
        assert bodies(whole, TOPIC) == kept
        for pid in whole.pids().values():
            os.kill(pid, signal.SIGTERM)  # as a service manager may signal all processes
        assert whole.stop() == 0


def test_a_directory_that_one_broker_cannot_lock_keeps_no_other_from_serving(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    (data / "broker-0" / "lock").mkdir(parents=True)
    with Supervised(data=data) as running:
        assert running.ready is not None
        assert running.ready.recovered == "1 of 2 brokers"
        said = running.log.read_text()
        assert f"{data}/broker-0/lock cannot be opened" in said
        assert "locked by another broker" not in said


def test_brokers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """kill -9 of the supervisor alone: no orphan holds ports or locks, and a start follows."""
    with Supervised(data=tmp_path / "data") as whole:
        assert stored(whole, 20)
        kept, pids = bodies(whole, TOPIC), whole.pids()
        whole.kill()
        whole.start()  # waits for what the brokers still do
        assert not set(whole.pids().values()) & set(pids.values())
        assert bodies(whole, TOPIC) == kept
        eventually(
            lambda: not any(map(alive, pids.values())), within_s=20, what="the first ones are gone"
        )


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_broker_that_cannot_start_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """It has a file for a directory: it is tried again and again, with pauses that grow."""
    data = tmp_path / "data"
    broken = data / "broker-1" / "consumequeue"
    broken.parent.mkdir(parents=True)
    broken.touch()
    with Supervised(data=data) as whole:
        assert whole.ready is not None
        assert whole.ready.recovered == "1 of 2 brokers"
        assert set(stored(whole, 16)) == {"b-0"}
        health = whole.health()
        assert (health["code"], health["status"]) == (503, "degraded")
        assert health["checks"]["b-1"].startswith(("ended with 3", "starting"))
        broken.unlink()
        whole.await_ready()
        ended = [one for one in events(whole.log.read_text()) if one["event"] == "member.ended"]
        assert [one["again_in_s"] for one in ended] == [0.5 * 2**n for n in range(len(ended))]
        assert whole.stop() == 0


def test_a_stop_during_the_start_ends_all(tmp_path: Path) -> None:
    """It is no start that failed, and not ready either."""
    whole = Supervised(data=tmp_path / "data")
    child = whole.launch()
    eventually(whole.pids, within_s=30, what="the first broker is there", every_s=0.005)
    pids = whole.pids()
    assert child.stop(within_s=120) == 0
    assert not {"broker.refused", "supervisor.started"} & {
        one["event"] for one in events(whole.log.read_text())
    }
    eventually(
        lambda: not any(map(alive, pids.values())), within_s=120, what="all brokers have ended"
    )


class Listening(Systemd):
    """Reads all the while: the socket keeps ten messages."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.socket.setblocking(True)
        self.lines: list[str] = []
        self.thread = Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        """Until an empty message."""
        while said := self.socket.recv(4_096).decode():
            self.lines += said.split("\n")

    def end(self) -> None:
        """Hear no more."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.socket.getsockname())
        self.thread.join()
        self.socket.close()


def listening(name: str) -> tuple[Listening, dict[str, str]]:
    """A systemd that listens, and the environment that leads to it."""
    address = f"aerobee-{os.getpid()}-{name}"
    return Listening(f"\0{address}"), {"NOTIFY_SOCKET": f"@{address}"}


def test_systemd_hears_of_the_whole_and_a_silent_broker_is_replaced(tmp_path: Path) -> None:
    """Its watchdog is asked for in all of them: one that stands still is killed."""
    systemd, env = listening("many")
    env["WATCHDOG_USEC"] = "6000000"
    with Supervised(data=tmp_path / "data", env=env) as whole:
        eventually(
            lambda: {"READY=1", "WATCHDOG=1"} <= set(systemd.lines),
            within_s=30,
            what="it is told that the whole is ready",
        )
        silent = whole.pids()["b-1"]
        os.kill(silent, signal.SIGSTOP)
        eventually(lambda: not alive(silent), within_s=40, what="it was killed")
        whole.await_ready()
        assert whole.stop() == 0
    eventually(lambda: "STOPPING=1" in systemd.lines, within_s=30, what="it is told of the stop")
    systemd.end()
    lines = list(events(whole.log.read_text()))
    assert [one["broker_name"] for one in lines if one["event"] == "member.silent"] == ["b-1"]


def test_accounts_of_the_one_file_hold_at_all(tmp_path: Path) -> None:
    """ACL 1.0: brokers and name server read the same files, and read them again. The account of the
    brokers themselves was forgotten at first.
    """
    conf = tmp_path / "conf"
    conf.mkdir()
    accounts = conf / "plain_acl.yml"
    accounts.touch(0o600)
    account = "- {accessKey: %s, secretKey: %s-secret, admin: true}\n"
    accounts.write_text("accounts:\n" + account % ("eve-the-second", "eve-the-second"))
    settings = {
        "aclEnable": True,
        "aclConfigDir": conf,
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "brokers", "secretKey": "brokers-secret"}
        ),
    }
    with Supervised(data=tmp_path / "data", settings=settings) as whole:
        health = whole.health()
        assert health["status"] == "failing", "they run, and no client finds them"
        assert all("not registered" in health["checks"][f"b-{n}"] for n in range(2))
        with accounts.open("a") as file:
            for name in ("brokers", "adam-the-first"):
                file.write(account % (name, name))
        whole.await_ready()
        adam = Credentials("adam-the-first", "adam-the-first-secret")

        def made() -> bool:
            try:
                with AdminClient(whole.namesrv_address, credentials=adam) as admin:
                    admin.create_topic(TOPIC)
                    return len(admin.topic_configs(TOPIC)) == 2
            except AerobeeError:
                return False

        eventually(made, within_s=15, what="the account holds at all of them")
        assert whole.stop() == 0


def test_users_hold_at_all_whichever_was_asked(tmp_path: Path) -> None:
    """Users and policies: by the command for all, at one broker, and after a broker was away."""
    inner = {"accessKey": "brokers", "secretKey": "brokers-secret"}
    settings = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "innerClientAuthenticationCredentials": json.dumps(inner),
    }
    chief = Credentials("brokers", "brokers-secret")
    adam = Credentials("adam", "adam-secret")
    with Supervised(data=tmp_path / "data", settings=settings) as whole:
        with AdminClient(whole.namesrv_address, credentials=chief) as admin:
            admin.create_user("adam", "adam-secret")
            admin.create_user("eve", "eve-secret", broker="b-1", is_super=True)
            admin.create_topic(TOPIC)
            admin.grant("adam", f"Topic:{TOPIC}", ["Pub"])

            def known(broker: str) -> bool:
                return {one.name for one in admin.users(broker=broker)} == {
                    "brokers",
                    "adam",
                    "eve",
                }

            names = whole.namesrv_address
            for broker in ("b-0", "b-1", names):
                eventually(partial(known, broker), within_s=30, what=f"all are known at {broker}")

            def sent_to_both() -> bool:
                try:
                    with Producer(names, group="g", credentials=adam) as producer:
                        sent = [producer.send(Message(TOPIC, b"x")) for _ in range(16)]
                except AccessDeniedError:
                    return False
                return {one.queue.broker_name for one in sent} == {"b-0", "b-1"}

            eventually(sent_to_both, within_s=30, what="the right holds at all")
            os.kill(whole.pids()["b-1"], signal.SIGKILL)
            admin.delete_user("eve", broker="b-0")
            whole.await_ready()
            assert {one.name for one in admin.users(broker="b-1")} == {"brokers", "adam"}
            admin.revoke("adam")
            admin.delete_user("adam")
            assert {one.name for one in admin.users()} == {"brokers"}
        with pytest.raises(AerobeeError), AdminClient(names, credentials=adam) as admin:
            admin.topics()
        assert whole.stop() == 0


def test_signals_of_the_whole(tmp_path: Path) -> None:
    """The one log is opened again, a changed `brokers` waits for a restart, and all leave."""
    settings = tmp_path / "broker.yaml"
    settings.write_text("brokers: 2\n")
    log = tmp_path / "aerobee.log"
    quick = {"lameDuckGraceSeconds": 0, "lameDuckSpreadSeconds": 0}
    more = {"logFile": log, "brokers": None, **quick}
    systemd, env = listening("signals")
    with Configured(data=tmp_path / "data", settings=more, file=settings, env=env) as whole:
        log.rename(tmp_path / "old.log")
        os.kill(whole.child.pid, signal.SIGUSR1)
        settings.write_text("brokers: 3\n")

        def told(event: str) -> list[dict[str, object]]:
            lines = events(log.read_text()) if log.exists() else ()
            return [one for one in lines if one["event"] == event]

        eventually(
            lambda: (
                {one.get("broker_name") for one in told("log.reopened")} >= {None, "b-0", "b-1"}
            ),
            within_s=30,
            what="all write to the new file",
        )
        os.kill(whole.child.pid, signal.SIGHUP)
        eventually(lambda: told("config.needs_restart"), within_s=30, what="a restart is asked for")
        assert [one["key"] for one in told("config.needs_restart")] == ["brokers"]
        os.kill(whole.child.pid, signal.SIGUSR2)
        eventually(lambda: not whole.child.running, within_s=20, what="all have left")
        eventually(lambda: "STOPPING=1" in systemd.lines, within_s=30, what="systemd is told")
        systemd.end()
        assert [one["clean"] for one in told("broker.stopped")] == [True, True]


# ── refused ──


def test_settings_that_are_wrong_since_are_in_the_one_log_with_the_name_of_the_broker(
    tmp_path: Path,
) -> None:
    """A broker is started again, and the file was edited to nonsense meanwhile."""
    file, log = tmp_path / "b.yaml", tmp_path / "aerobee.log"
    file.write_text("brokers: two\nlistenPort: none\n")
    own = [f"--member={pair}" for pair in ("brokerName=b-1", f"logFile={log}", "brokers=1")]
    command = [sys.executable, "-m", "aerobee", "broker", "run", "-c", str(file), *own]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        done = subprocess.run(
            command, stdin=theirs.fileno(), capture_output=True, timeout=30, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    (line,) = events(log.read_text())
    assert (line["event"], line["level"], line["broker_name"]) == ("broker.refused", "error", "b-1")
    assert "two is no number of brokers" in line["reason"]
    assert "listenPort" in line["reason"]


def refused(whole: Supervised) -> str:
    """The reason of a start that is refused."""
    with pytest.raises(DidNotStart):
        whole.start()
    return whole.log.read_text()


def test_where_none_can_start_the_whole_ends_with_their_exit_code(tmp_path: Path) -> None:
    for number in range(2):
        file = tmp_path / "data" / f"broker-{number}" / "consumequeue"
        file.parent.mkdir(parents=True)
        file.touch()
    with pytest.raises(DidNotStart) as told:
        Supervised(data=tmp_path / "data").start()
    assert told.value.exit_code == 3


def test_a_port_of_any_broker_that_is_taken_refuses_the_start(tmp_path: Path) -> None:
    whole = Supervised(data=tmp_path / "data")
    with socket.create_server(("127.0.0.1", whole.ports.listen + 10)):
        told = refused(whole)
    assert f"Address already in use by {Path(sys.executable).resolve().name[:6]}" in told
    assert f"(pid {os.getpid()}); stop that, or set listenPort to another port (this is" in told
    assert "listenPort of broker 1)" in told


@pytest.mark.parametrize("begun", ["log", "data", "data/lock", "data/broker-1"])
def test_a_stop_while_the_brokers_begin_is_a_clean_one(tmp_path: Path, begun: str) -> None:
    """Of the processes, some do not obey signals yet, or are not there."""
    whole = Supervised(data=tmp_path / "data", log_path=tmp_path / "log")
    whole.launch()
    eventually((tmp_path / begun).exists, within_s=30, every_s=0.01, what=f"there is {begun}")
    assert whole.stop() in (0, -signal.SIGTERM), whole.log.read_text()
    assert not whole.pids()


@pytest.mark.parametrize("log", [None, "data/commitlog", "data/a/log", "log"])
def test_one_store_becomes_that_of_broker_0_by_the_command_that_the_refusal_tells(
    tmp_path: Path, log: str | None
) -> None:
    """`brokers: 1`, then 2, then 1 again: nothing is hidden, and nothing is moved unasked."""
    data = tmp_path / "data"
    settings = {} if log is None else {"storePathCommitLog": str(tmp_path / log)}
    ports = Supervised(data=data).ports
    single = Supervised(data=data, brokers=1, ports=ports, settings=settings)
    with single:
        assert set(stored(single, 20)) == {"b"}
        kept = bodies(single, TOPIC)
        assert single.stop() == 0
    two = tmp_path / "two.log"
    whole = Supervised(data=data, ports=ports, settings=settings, log_path=two)
    told = refused(whole)
    (reason,) = (one["reason"] for one in events(told) if one["event"] == "broker.refused")
    command = reason.partition("broker 0: ")[2]
    (data / "broker-0").mkdir()  # by a first try that was interrupted
    subprocess.run(["sh", "-ec", command], check=True)
    with whole:
        assert bodies(whole, TOPIC) == kept
        assert whole.stop() == 0
    one = tmp_path / "one.log"
    again = Supervised(data=data, brokers=1, ports=ports, settings=settings, log_path=one)
    told = refused(again)
    assert "broker-0, broker-1" in told
    alone = dict(re.findall(r"(storePath\w+|brokerName), ([^, \"]+)", told))
    assert len(alone) == 2 + len(settings)
    again.data = Path(alone.pop("storePathRootDir"))
    again.settings = alone
    with again:
        assert bodies(again, TOPIC) == kept
