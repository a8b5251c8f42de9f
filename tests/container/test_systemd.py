"""The units under a real systemd, installed by the commands of docs/operations: `make image-test`.

One machine for all of them, in the order of this file.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.kit.machine import Machine, booted
from tests.kit.pages import PAGES, blocks, may_fail
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.image

NOT_HERE = re.compile("python3 -m venv|pip install|sysctl --system")
"""The image that the machine is made of has what these install; its kernel is that of the host."""
STOP_WITHIN_S = 5.0
SMALL = {
    "AEROBEE_MAPPED_FILE_SIZE_COMMIT_LOG": 1_048_576,
    "AEROBEE_MAX_HASH_SLOT_NUM": 1_000,
    "AEROBEE_LAME_DUCK_GRACE_SECONDS": 1,
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        lines = "\\n".join(f"{name}={value}" for name, value in SMALL.items())
        machine.run(f"install -d /etc/aerobee && printf '{lines}' > /etc/aerobee/aerobee.env")
        yield machine


def follow(machine: Machine, page: str) -> None:
    """Run all commands of a page, in their order."""
    (path,) = (one for one in PAGES if one.name == page)
    for command in "".join(blocks(path)).splitlines():
        if not NOT_HERE.search(command):
            # An operator does not come to the limit of starts so soon.
            machine.run("systemctl reset-failed", check=False)
            done = machine.run(command, check=False)
            assert done.returncode == 0 or may_fail(command, done.returncode), (
                f"{page}: {command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            )


def test_the_commands_of_the_page_install_a_broker_that_serves(machine: Machine) -> None:
    """It counts as started when it serves: a client is served right behind the start."""
    follow(machine, "install.md")
    assert machine.state("aerobee", "ActiveState") == "active"
    assert machine.state("aerobee", "StatusText").startswith("serving at ")
    assert paid(machine) == ["paid"]


def paid(machine: Machine) -> list[str]:
    """The body of the first message in the topic of the pages."""
    return machine.run("aerobee consume Orders --from first --max 1").stdout.split()[1:]


def test_s17_it_has_no_rights_that_it_does_not_need(machine: Machine) -> None:
    """What the unit promises is what the kernel holds."""
    pid = machine.state("aerobee", "MainPID")
    status = dict(
        line.split(":\t", 1)
        for line in machine.run(f"cat /proc/{pid}/status").stdout.splitlines()
        if ":\t" in line
    )
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"], status["Umask"]) == ("1", "2", "0077")
    assert status["Uid"].split()[0] != "0"
    uid = status["Uid"].split()[0]
    mine = f"nsenter --target {pid} --mount --setuid {uid}"
    for place in ("/etc/aerobee", "/usr", "/opt/aerobee", "/var/lib"):
        refused = machine.run(f"{mine} touch {place}/x", check=False)
        assert refused.returncode != 0, place
    machine.run(f"nsenter --target {pid} --mount touch /var/lib/aerobee/x")
    machine.run("rm /var/lib/aerobee/x")
    for place in ("/usr", "/opt/aerobee", "/var/lib"):
        refused = machine.run(f"nsenter --target {pid} --mount touch {place}/x", check=False)
        assert "Read-only file system" in refused.stderr, place


def test_a_reload_takes_over_what_may_change(machine: Machine) -> None:
    machine.run("echo 'maxTopics: 777' >> /etc/aerobee/broker.yaml")
    machine.run("systemctl reload aerobee")
    seen = "aerobee broker config get maxTopics"
    eventually(lambda: "777" in machine.run(seen).stdout, within_s=30.0, what="the new setting")
    assert machine.state("aerobee", "ActiveState") == "active"
    assert machine.state("aerobee", "NRestarts") == "0"


def test_a_loop_that_stands_still_is_ended_and_started_again(machine: Machine) -> None:
    drop_in = "/run/systemd/system/aerobee.service.d"
    quick = r"[Service]\nWatchdogSec=2\nRestartSec=0\n"
    machine.run(f"install -d {drop_in} && printf '{quick}' > {drop_in}/quick.conf")
    machine.run("systemctl daemon-reload && systemctl restart aerobee")
    before = machine.state("aerobee", "MainPID")

    def outlived() -> bool:
        fed, begun = (
            int(machine.state("aerobee", f"{name}TimestampMonotonic"))
            for name in ("Watchdog", "ActiveEnter")
        )
        return fed - begun > 3_000_000

    eventually(outlived, within_s=20.0, what="a watchdog that was fed for longer than its time")
    assert machine.state("aerobee", "MainPID") == before
    machine.run(f"kill -STOP {before}")
    eventually(
        lambda: machine.state("aerobee", "NRestarts") == "1", within_s=20.0, what="a restart"
    )
    assert "Watchdog timeout" in machine.journal("aerobee")
    eventually(
        lambda: machine.state("aerobee", "ActiveState") == "active", within_s=20.0, what="it serves"
    )
    assert paid(machine) == ["paid"]
    machine.run(f"rm -r {drop_in} && systemctl daemon-reload")


def test_it_stops_at_once_with_a_consumer_that_waits(machine: Machine) -> None:
    """R19."""
    machine.run("timeout 60 aerobee consume Orders --follow >/dev/null 2>&1 &")
    seen = "aerobee connections"
    eventually(
        lambda: "aerobee_cli" in machine.run(seen).stdout, within_s=20.0, what="the consumer"
    )
    begun = time.monotonic()
    machine.run("systemctl stop aerobee")
    took_s = time.monotonic() - begun
    assert took_s <= STOP_WITHIN_S
    assert machine.state("aerobee", "Result") == "success"
    machine.run("test ! -e /var/lib/aerobee/abort")


@pytest.mark.parametrize(
    "page", ["upgrade.md", "backup.md", "tune.md", "logs.md", "troubleshoot.md"]
)
def test_the_commands_of_a_page_leave_a_broker_that_has_its_messages(
    page: str, machine: Machine
) -> None:
    machine.run("systemctl start aerobee && aerobee group create billing")
    follow(machine, page)
    assert machine.state("aerobee", "ActiveState") == "active"
    assert paid(machine) == ["paid"]


def test_a_wrong_setting_refuses_the_start_and_is_not_tried_again(machine: Machine) -> None:
    machine.run("systemctl stop aerobee && echo 'maxTopics: many' >> /etc/aerobee/broker.yaml")
    refused = machine.run("systemctl start aerobee", check=False)
    assert refused.returncode != 0
    assert machine.state("aerobee", "ActiveState") == "failed"
    assert machine.state("aerobee", "ExecMainStatus") == "2"
    assert "maxTopics" in machine.journal("aerobee")
    machine.run("sed -i /maxTopics/d /etc/aerobee/broker.yaml")
    # Of the starts so far the unit would allow one more within five minutes.
    machine.run("systemctl reset-failed aerobee && systemctl start aerobee")


def test_the_name_server_alone_is_a_unit_too(machine: Machine) -> None:
    machine.run("systemctl stop aerobee")
    machine.run("systemctl start aerobee-nameserver")
    assert machine.state("aerobee-nameserver", "StatusText").startswith("serving at ")
    for line in ("embedded_namesrv: false", "namesrv_addr: 127.0.0.1:9876"):
        machine.run(f"echo '{line}' >> /etc/aerobee/broker.yaml")
    machine.run("systemctl reset-failed && systemctl start aerobee")
    eventually(lambda: paid(machine) == ["paid"], within_s=60.0, what="a route of both")
