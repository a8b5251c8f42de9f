"""The units under a real systemd, installed by the commands of docs/operations: `make image-test`.

One machine for all of them, in the order of this file.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.kit.image import ROOT
from tests.kit.machine import Machine, booted
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.image

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_HERE = re.compile(r"^.*(?:python3 -m venv|pip install|sysctl --system).*\n", re.MULTILINE)
"""The image that the machine is made of has what these install; its kernel is that of the host."""
AEROBEE = "/opt/aerobee/bin/aerobee"
STOP_WITHIN_S = 5.0
SMALL = "AEROBEE_MAPPED_FILE_SIZE_COMMIT_LOG=1048576\nAEROBEE_MAX_HASH_SLOT_NUM=1000\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        machine.run(f"install -d /etc/aerobee && printf '{SMALL}' > /etc/aerobee/aerobee.env")
        yield machine


def commands(page: str, heading: str) -> str:
    """The first block of commands below a heading."""
    text = (ROOT / "docs" / "operations" / page).read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = BLOCK.search(section)
    assert found, f"{page}: {heading}"
    return NOT_HERE.sub("", found[1])


def test_the_commands_of_the_page_install_a_broker_that_serves(machine: Machine) -> None:
    """It counts as started when it serves: a client is served right behind the start."""
    machine.run(commands("service.md", "Install"))
    assert machine.state("aerobee", "ActiveState") == "active"
    assert machine.state("aerobee", "StatusText").startswith("serving at ")
    machine.run(f"{AEROBEE} produce TopicTest hello")
    told = machine.run(f"{AEROBEE} consume TopicTest --from first --max 1")
    assert "hello" in told.stdout


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
    seen = f"{AEROBEE} broker config get maxTopics"
    eventually(lambda: "777" in machine.run(seen).stdout, within_s=5.0, what="the new setting")
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
    told = machine.run(f"{AEROBEE} consume TopicTest --from first --max 1")
    assert "hello" in told.stdout
    machine.run(f"rm -r {drop_in} && systemctl daemon-reload")


def test_it_stops_at_once_with_a_consumer_that_waits(machine: Machine) -> None:
    """R19."""
    machine.run(f"timeout 60 {AEROBEE} consume TopicTest --follow >/dev/null 2>&1 &")
    seen = f"{AEROBEE} connections"
    eventually(
        lambda: "aerobee_cli" in machine.run(seen).stdout, within_s=20.0, what="the consumer"
    )
    begun = time.monotonic()
    machine.run("systemctl stop aerobee")
    took_s = time.monotonic() - begun
    assert took_s <= STOP_WITHIN_S
    assert machine.state("aerobee", "Result") == "success"
    assert machine.run("test ! -e /var/lib/aerobee/abort", check=False).returncode == 0


def test_a_wrong_setting_refuses_the_start_and_is_not_tried_again(machine: Machine) -> None:
    machine.run("echo 'maxTopics: many' >> /etc/aerobee/broker.yaml")
    refused = machine.run("systemctl start aerobee", check=False)
    assert refused.returncode != 0
    assert machine.state("aerobee", "ActiveState") == "failed"
    assert machine.state("aerobee", "ExecMainStatus") == "2"
    assert "maxTopics" in machine.journal("aerobee")
    machine.run("sed -i /maxTopics/d /etc/aerobee/broker.yaml")
    # Of the starts so far the unit would allow one more within five minutes.
    machine.run("systemctl reset-failed aerobee && systemctl start aerobee")


def test_the_name_server_alone_is_a_unit_too(machine: Machine) -> None:
    machine.run("systemctl stop aerobee && touch /etc/aerobee/nameserver.yaml")
    machine.run("cp conf/systemd/aerobee-nameserver.service /etc/systemd/system/")
    machine.run("systemctl daemon-reload && systemctl start aerobee-nameserver")
    assert machine.state("aerobee-nameserver", "StatusText").startswith("serving at ")
    machine.run("systemctl stop aerobee-nameserver && systemctl start aerobee")
