"""The broker as a process: its one line, its exit codes, its signals, data that may be lost."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aerobee.broker import __main__ as main
from aerobee.broker import start_checks
from aerobee.broker.process import signals
from aerobee.remoting.server import boss
from aerobee.store.files.disk import Disk
from tests.broker.desk import broker_config
from tests.broker.process.test_service_manager import Systemd
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_block, free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, pull_fields, send_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.machine import Space
    from tests.kit.process import Child

pytestmark = pytest.mark.ours

STOPS_WITHIN_S = 20.0
FLOOD_S = 0.2
"""Signals without a pause before one that stops."""
SEND, PULL = 310, 11

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


class MountedDisk(Disk):
    """A directory on a file system of the test's choice."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.asked: list[Path] = []

    def file_system(self, path: Path) -> str:
        self.asked.append(path)
        return self.kind


# ── data that may be lost ──


@pytest.mark.parametrize("kind", sorted(start_checks.VOLATILE_FILE_SYSTEMS))
@pytest.mark.parametrize(
    ("in_image", "ephemeral", "starts"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
def test_in_the_image_data_without_a_volume_is_refused_unless_that_is_said(
    tmp_path: Path, kind: str, in_image: bool, ephemeral: bool, starts: bool
) -> None:
    config = replace(broker_config(tmp_path, ephemeral=ephemeral), in_image=in_image)
    assert start_checks.keeps_data(config, MountedDisk(kind)) is starts


def test_a_link_that_leads_nowhere_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("not mounted")
    with capture_logs() as lines:
        assert not start_checks.may_start(broker_config(tmp_path / "data"), Disk())
    (line,) = lines
    assert f"{tmp_path / 'data'}: No such file or directory; mount or make" in line["reason"]


def test_a_volume_keeps_data(tmp_path: Path) -> None:
    config = replace(broker_config(tmp_path / "made" / "later"), in_image=True)
    disk = MountedDisk("ext4")
    assert start_checks.keeps_data(config, disk)
    assert disk.asked == [tmp_path], "the nearest directory that is there"


NOBODY = 10_001
REMEDY = re.compile(r": ((?:chown|install) .*?) as root")


def refused_to_nobody(config: BrokerConfig) -> str:
    """What another user is told of a data directory; empty when the user may write there."""
    with capture_logs() as lines:
        os.seteuid(NOBODY)
        try:
            may_write = start_checks.may_write(config, Disk())
        finally:
            os.seteuid(0)
    assert may_write != bool(lines)
    return str(lines[0]["reason"]) if lines else ""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, with a blank in its name."""
    with tempfile.TemporaryDirectory(prefix="data of ") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@only_root
@pytest.mark.parametrize("below", ["", "data", "made/later"])
def test_a_directory_of_somebody_else_is_refused_with_the_command_that_helps(
    place: Path, below: str
) -> None:
    """The command is run here as it is printed. It names no directory above the broker's own."""
    config = broker_config(place / below)
    assert start_checks.may_write(config, Disk())
    (command,) = REMEDY.findall(refused_to_nobody(config))
    assert shlex.split(command)[-1] == str(place / below)
    subprocess.run(["sh", "-c", command], check=True)
    assert refused_to_nobody(config) == ""
    assert (place / below).stat().st_uid == NOBODY
    if below:
        assert place.stat().st_uid == 0


@only_root
@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib"])
def test_no_directory_with_files_of_others_is_given_away(path: str) -> None:
    told = refused_to_nobody(broker_config(Path(path)))
    assert f"may not write in {path}, which has files of others" in told
    assert "chown" not in told


@only_root
def test_the_directory_of_a_broker_is_given_back_whatever_is_in_it(place: Path) -> None:
    for name in ("commitlog", "config", "notes-of-the-operator"):
        (place / name).mkdir()
    (command,) = REMEDY.findall(refused_to_nobody(broker_config(place)))
    subprocess.run(["sh", "-c", command], check=True)
    assert {path.stat().st_uid for path in place.rglob("*")} == {NOBODY}


@only_root
@pytest.mark.parametrize("below", ["data", "made/later"])
def test_a_parent_that_may_not_be_entered_is_named_without_a_command(
    place: Path, below: str
) -> None:
    (place / "data").mkdir()
    place.chmod(0o700)
    told = refused_to_nobody(broker_config(place / below))
    assert f"may not enter {place}, above {place / below}: let this user enter it" in told
    assert REMEDY.findall(told) == []
    place.chmod(0o755)
    assert "may not enter" not in refused_to_nobody(broker_config(place / below))


def test_a_limit_of_more_free_space_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    """For it, all messages but those of the last segment were deleted within a minute."""
    disk = Disk()
    more = disk.free_space(tmp_path).total_bytes + 1
    limit = "disk_space_clean_forcibly_free_bytes"
    with capture_logs() as lines:
        assert not start_checks.fits_disk(broker_config(tmp_path / "later", **{limit: more}), disk)
    [line] = lines
    assert line["event"] == "broker.refused"
    assert line["reason"].startswith("diskSpaceCleanForciblyRatio: ")
    assert start_checks.fits_disk(broker_config(tmp_path, **{limit: 1_048_576}), disk)


def test_a_disk_that_does_not_answer_is_a_refusal_that_names_the_path(tmp_path: Path) -> None:
    class SilentDisk(Disk):
        def free_space(self, path: Path) -> Space:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    disk = SilentDisk()
    with capture_logs() as lines:
        assert not start_checks.fits_disk(broker_config(tmp_path), disk)
    [line] = lines
    assert line["reason"].startswith(str(tmp_path))
    assert "storePathRootDir" in line["reason"]


# ── the process ──


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("main") / "data"


@pytest.mark.service
def test_the_ready_line_is_all_that_stdout_has(data: Path, tmp_path: Path) -> None:
    """And what systemd hears meanwhile."""
    notify = Systemd(str(tmp_path / "notify"))
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
    with BrokerProcess(data=data, env=env) as broker:
        ready = broker.ready
        assert ready is not None
        assert (ready.broker, ready.namesrv) == (broker.address, broker.namesrv_address)
        assert (ready.data, ready.recovered) == (data, "clean")
        assert 0 < ready.elapsed_s < 30
        told = notify.told()
        broker.child.signal(signal.SIGHUP)
        broker.child.let_run(0.5)
        told += notify.told()
        broker.child.signal(signal.SIGTERM)
        with pytest.raises(DidNotStart, match="ended; stdout b''") as end:
            broker.child.read_line(within_s=STOPS_WITHIN_S)
        assert end.value.exit_code == main.DONE
        assert "broker.started" in broker.child.errors()
        assert "broker.stopped" in broker.child.errors()
    told += notify.told()
    notify.socket.close()
    order = ["STATUS=recovering", "READY=1", "RELOADING=1", "STOPPING=1"]
    assert sorted(order, key=told.index) == order
    assert told.count("READY=1") == 2
    assert told.count("WATCHDOG=1") > 2


@pytest.mark.service
def test_a_kill_is_told_by_the_next_ready_line(data: Path) -> None:
    with BrokerProcess(data=data) as broker:
        with RawConnection(broker.address) as client:
            assert client.call(SEND, send_fields("t", 0), b"x").code == 0
        assert broker.kill() == -signal.SIGKILL
        ready = broker.start()
        assert ready.recovered.startswith("abnormal, cut ")
        assert broker.stop() == 0
        assert broker.start().recovered == "clean"


@pytest.mark.service
def test_no_other_user_may_read_what_it_writes(data: Path) -> None:
    with BrokerProcess(data=data):
        modes = {path: path.stat().st_mode & 0o077 for path in data.rglob("*")}
    assert modes
    assert not [path for path, mode in modes.items() if mode]


@pytest.mark.service
@pytest.mark.parametrize("number", signals.STOPS)
def test_a_signal_stops_it_clean(data: Path, number: signal.Signals) -> None:
    with BrokerProcess(data=data) as broker:
        broker.child.signal(number)
        assert broker.child.wait(within_s=STOPS_WITHIN_S) == 0
        assert not (data / "abort").exists()
        assert "Traceback" not in broker.child.errors()


UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG = 25, 26


class FromFile(BrokerProcess):
    """A broker that is given a file as well."""

    @property
    def file(self) -> Path:
        return self.data.parent / "broker.yaml"

    def command(self) -> list[str]:
        return [*super().command(), "-c", str(self.file)]

    def said(self, count: int, event: str) -> None:
        """Wait until the log has so many of such a line."""
        eventually(
            lambda: self.child.errors().count(event) >= count,
            within_s=STOPS_WITHIN_S,
            what=f"{count} of {event}",
        )


@pytest.mark.service
def test_a_hang_up_reads_the_settings_again_and_stops_nothing(tmp_path: Path) -> None:
    broker = FromFile(data=tmp_path / "data")
    broker.file.write_text("max_message_size: 4096\n")
    with broker, RawConnection(broker.address) as client:

        def takes(size: int) -> bool:
            return client.call(SEND, send_fields("t", 0), b"x" * size).code == 0

        assert (takes(4096), takes(4097)) == (True, False)
        broker.file.write_text("max_message_size: 8192\nflush_disk_type: SYNC_FLUSH\n")
        broker.child.signal(signal.SIGHUP)
        broker.said(1, "config.reloaded")
        assert (takes(8192), takes(8193)) == (True, False)
        assert "flushDiskType" in broker.child.errors()
        for text in ("max_message_size: lots", "max_message_size: [", "max_message_size: 32MiB"):
            broker.file.write_text(text)
            refused = broker.child.errors().count("config.reload_refused")
            broker.child.signal(signal.SIGHUP)
            broker.said(refused + 1, "config.reload_refused")
            assert (takes(8192), takes(8193)) == (True, False)
        broker.file.unlink()
        for _ in range(200):
            broker.child.signal(signal.SIGHUP)
            assert takes(1)
        assert broker.stop() == 0


@pytest.mark.service
def test_a_hang_up_at_any_time_of_start_and_stop_ends_nothing(tmp_path: Path) -> None:
    """From the command's first line on, before which Python itself starts."""
    broker = FromFile(data=tmp_path / "data")
    broker.file.write_text("max_message_size: 4096\n")
    child = broker.launch()
    try:
        # The mask of blocked signals shows that the command has begun: it alone blocks just these.
        mask = sum(1 << (number - 1) for number in signals.TAKEN)
        eventually(
            lambda: int(status_of(child.pid)["SigBlk"], 16) == mask,
            within_s=STOPS_WITHIN_S,
            what="begin",
        )
        broker.file.write_text("max_message_size: 8192\n")
        child.signal(signal.SIGHUP)
        child.read_until("aerobee ready ", within_s=STOPS_WITHIN_S)
        broker.said(1, "config.reloaded")
        with RawConnection(broker.address) as client:
            assert client.call(SEND, send_fields("t", 0), b"x" * 8192).code == 0
        # As fast as it goes: handlers written in Python called each other until they could not, and
        # the kernel gives a pending SIGHUP before a pending SIGTERM.
        flood_until(child, time.monotonic() + FLOOD_S)
        child.signal(signal.SIGTERM)
        flood_until(child, time.monotonic() + STOPS_WITHIN_S)
        assert not child.running
        assert "Traceback" not in child.errors()
        assert child.wait(within_s=STOPS_WITHIN_S) == 0
    finally:
        child.kill()


def flood_until(child: Child, end: float) -> None:
    """Send it SIGHUP without a pause, until it has ended or that time (of `time.monotonic`)."""
    while child.running and time.monotonic() < end:
        child.signal(signal.SIGHUP)


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


@pytest.mark.service
def test_a_change_that_was_acknowledged_outlives_a_kill(data: Path) -> None:
    with BrokerProcess(data=data) as broker:
        for hours in (11, 12):
            with RawConnection(broker.address) as client:
                answer = client.call(UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=%d\n" % hours)
                assert answer.code == 0
                broker.child.signal(signal.SIGHUP)
                broker.kill()
            broker.start()
            with RawConnection(broker.address) as client:
                answer = client.call(GET_BROKER_CONFIG, {})
                assert b"\nfileReservedTime=%d\n" % hours in answer.body
        assert broker.stop() == 0


@pytest.mark.service
def test_a_terminal_that_closes_stops_it(data: Path) -> None:
    """It sends SIGHUP too. And nobody but who sits there reads what it shows: the first secret."""
    broker = BrokerProcess(data=data, settings={"authenticationEnabled": "true"})
    child, terminal = pty.fork()
    if child == 0:
        try:
            command = broker.command()
            os.execv(command[0], command)
        finally:
            os._exit(127)
    try:
        said = b""
        while b"aerobee ready " not in said:
            said += os.read(terminal, 4_096)
        assert re.search(rb"access key admin, secret key \S{20,} \(told only now", said)
        assert not (data / "config" / "first-admin.secret").exists()
        os.close(terminal)
        eventually(
            lambda: os.waitpid(child, os.WNOHANG)[0] == child, within_s=STOPS_WITHIN_S, what="end"
        )
        child = 0
        assert not (data / "abort").exists(), "a clean stop"
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.service
def test_signals_that_mean_nothing_here_end_nothing(data: Path) -> None:
    with BrokerProcess(data=data) as broker, RawConnection(broker.address) as client:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            broker.child.signal(number)
            assert client.call(SEND, send_fields("t", 0), b"x").code == 0
        assert broker.stop() == 0


@pytest.mark.service
def test_a_broker_that_was_started_to_outlive_its_terminal_does(data: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        broker = BrokerProcess(data=data)
        broker.launch()
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        broker.child.read_until("aerobee ready ", within_s=STOPS_WITHIN_S)
        broker.child.signal(signal.SIGHUP)
        with RawConnection(broker.address) as client:
            assert client.call(SEND, send_fields("t", 0), b"x").code == 0
        assert broker.stop() == 0
    finally:
        broker.child.kill()


@pytest.mark.service
def test_an_address_that_is_not_of_this_host_is_named_with_its_key(tmp_path: Path) -> None:
    words = "Cannot assign requested address; set bindAddress to an address of this host"
    settings = {"bindAddress": "192.0.2.1", "insecure": "true"}
    with pytest.raises(DidNotStart, match=words) as refused:
        BrokerProcess(data=tmp_path / "data", settings=settings).start()
    assert refused.value.exit_code == main.FAILED


@pytest.mark.service
def test_the_ready_line_names_our_own_name_server_and_nobody_registers_with_himself(
    data: Path,
) -> None:
    elsewhere = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(data=data)
    broker.env = {"NAMESRV_ADDR": f"localhost:{broker.namesrv_port};{elsewhere}"}
    with broker:
        assert broker.ready is not None
        assert broker.ready.namesrv == broker.namesrv_address
        eventually(
            lambda: "namesrv.unreachable" in broker.child.errors(),
            within_s=STOPS_WITHIN_S,
            what="the other one is tried",
        )
        assert broker.stop() == 0
        lines = [line for line in broker.child.errors().splitlines() if '"namesrv.' in line]
        assert all(elsewhere in line for line in lines), lines


# ── where its lines go ──


def open_connections(broker: BrokerProcess, count: int) -> None:
    """Two lines of the log each."""
    for _ in range(count):
        RawConnection(broker.address).close()


@pytest.mark.service
def test_the_level_changes_while_it_runs_and_a_renamed_log_file_is_opened_again(
    tmp_path: Path,
) -> None:
    file, before = tmp_path / "aerobee.log", tmp_path / "aerobee.log.1"
    settings = {"logFile": file, "logFormat": "json"}
    env = {"AEROBEE_LOG_LEVEL": "warning"}
    with BrokerProcess(data=tmp_path / "data", settings=settings, env=env) as broker:
        assert b"broker.started" not in file.read_bytes()
        with RawConnection(broker.address) as client:
            for level in ("info", "debug"):
                body = b"logLevel=%s\n" % level.encode()
                assert client.call(UPDATE_BROKER_CONFIG, {}, body).code == 0
            assert client.call(UPDATE_BROKER_CONFIG, {}, b"logLevel=loud\n").code != 0
        open_connections(broker, 1)
        eventually(
            lambda: b"connection.opened" in file.read_bytes(),
            within_s=STOPS_WITHIN_S,
            what="debug lines",
        )
        file.rename(before)
        broker.child.signal(signal.SIGUSR1)
        eventually(file.exists, within_s=STOPS_WITHIN_S, what="open it again")
        size = before.stat().st_size
        open_connections(broker, 1)
        assert broker.stop() == 0
        assert b"log.reopened" in file.read_bytes()
        assert b"broker.stopped" in file.read_bytes()
        assert before.stat().st_size == size
        assert file.stat().st_mode & 0o777 == 0o600
        assert broker.child.errors() == ""


@pytest.mark.service
def test_a_log_file_that_cannot_be_opened_refuses_the_start(tmp_path: Path) -> None:
    settings = {"logFile": tmp_path / "none" / "aerobee.log"}
    with pytest.raises(DidNotStart, match=r"logFile: .*No such file or directory; name") as refused:
        BrokerProcess(data=tmp_path / "data", settings=settings).start()
    assert refused.value.exit_code == main.FAILED


@pytest.mark.service
def test_a_log_that_nobody_reads_holds_up_nothing_and_loses_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4_096)
    broker = BrokerProcess(
        data=tmp_path / "data", log_path=pipe, env={"AEROBEE_LOG_LEVEL": "debug"}
    )
    with broker:
        open_connections(broker, 100)
        with RawConnection(broker.address) as client:
            # Accepted after the others, so that none of them is still unknown at the stop.
            assert client.call(SEND, send_fields("t", 0), b"x").code == 0, "no line is waited for"
        broker.child.signal(signal.SIGTERM)
        seen = b""
        readable = select.poll()
        readable.register(end, select.POLLIN)
        while b"broker.stopped" not in seen:
            assert readable.poll(STOPS_WITHIN_S * 1_000), seen[-2_000:]
            seen += os.read(end, 4_096)
        os.close(end)
        assert broker.child.wait(within_s=STOPS_WITHIN_S) == 0
        assert seen.count(b"connection.opened") >= 100
        assert all(line.startswith(b"{") for line in seen.splitlines())


@pytest.mark.service
def test_a_log_that_nobody_can_read_any_more_ends_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    broker = BrokerProcess(
        data=tmp_path / "data", log_path=pipe, env={"AEROBEE_LOG_LEVEL": "debug"}
    )
    with broker:
        os.close(end)
        open_connections(broker, 3)
        with RawConnection(broker.address) as client:
            assert client.call(SEND, send_fields("t", 0), b"x").code == 0
        assert broker.stop() == 0


@pytest.mark.service
def test_a_full_disk_under_its_output_keeps_it_from_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data")
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            broker.command(), stdin=subprocess.DEVNULL, stdout=full, stderr=full
        )
    try:

        def sends() -> bool:
            try:
                with RawConnection(broker.address) as client:
                    return client.call(SEND, send_fields("t", 0), b"x").code == 0
            except ConnectionError:
                return False

        eventually(sends, within_s=STOPS_WITHIN_S, what="it serves")
        process.terminate()
        assert process.wait(STOPS_WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.service
def test_a_second_signal_ends_it_at_once_and_the_next_start_recovers(data: Path) -> None:
    with BrokerProcess(data=data) as broker:
        with RawConnection(broker.address) as deaf:
            # An answer that nobody reads keeps the first signal's grace waiting.
            for _ in range(40):
                assert deaf.call(SEND, send_fields("t", 0), b"x" * 60_000).code == 0
            for _ in range(200):
                deaf.ask(PULL, pull_fields("g", "t", 0, 0, bulkBytes=4 << 20))
            broker.child.signal(signal.SIGTERM)
            broker.child.signal(signal.SIGINT)
            code = broker.child.wait(within_s=4)
        assert code == main.FAILED
        assert (data / "abort").exists()
        assert broker.start().recovered.startswith("abnormal")


@pytest.mark.service
def test_a_store_that_refuses_is_exit_code_3_and_says_which(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "config").mkdir(parents=True)
    for name in ("topics.json", "topics.json.bak"):
        (data / "config" / name).write_text("{not json")
    with pytest.raises(DidNotStart, match=r"topics\.json") as refused:
        BrokerProcess(data=data).start()
    assert refused.value.exit_code == main.STORE_REFUSED
    assert "Traceback" not in str(refused.value)


@pytest.mark.service
def test_a_taken_port_is_exit_code_1_and_names_it(tmp_path: Path) -> None:
    ports = free_block()
    with (
        boss.listen("127.0.0.1", ports.listen, 1),
        boss.listen("127.0.0.1", ports.metrics, 1),
        pytest.raises(DidNotStart, match=f"cannot listen on .*:{ports.listen}") as refused,
    ):
        BrokerProcess(data=tmp_path / "data", ports=ports).start()
    assert refused.value.exit_code == main.FAILED
    assert f"127.0.0.1:{ports.metrics}: " in str(refused.value), "all that are taken are named"
    assert "Traceback" not in str(refused.value)
    assert not (tmp_path / "data").exists()
