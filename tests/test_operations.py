"""The commands of docs/operations, run as they stand: those that need no systemd, on one broker.

Those that do are run by tests/container/test_systemd.py, with all others of these pages.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee import ConsumeFrom, Message
from aerobee.blocking import AdminClient, Producer, PullConsumer
from aerobee.cli.main import main
from tests.kit.broker_process import BrokerProcess
from tests.kit.pages import PAGES, blocks, links, may_fail
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.service

SYSTEM = re.compile(
    r"systemctl|journalctl|sysctl|useradd|chown|pip install|python3 -m venv|prometheus --config"
    r"|docker|helm|/var/lib|/etc/(?!aerobee/broker\.yaml)|/backup|certs|aerobee broker run"
)
"""Needs a machine of its own, or is run by the tests of that page or by tests/test_snippets.py."""
CASES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page))
    if not SYSTEM.search(block)
]
WITHIN_S = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker with what the pages speak of; the environment of a shell beside it."""
    folder = tmp_path_factory.mktemp("operations")
    console = free_port()
    settings = {"brokerName": "broker-a", "consolePort": console}
    with BrokerProcess(data=folder / "data", settings=settings) as broker:
        names = broker.namesrv_address
        with AdminClient(names) as admin, Producer(names, group="shop") as producer:
            admin.create_topic("Orders", queues=4)
            for number in range(10, 20):
                producer.send(Message("Orders", b"paid", keys=[f"order-{number}"]))
        with PullConsumer("billing", names, start_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("Orders")
            next(iter(consumer))
        (folder / "broker.yaml").write_text("broker_name: broker-a\n")
        (folder / "broker.conf").write_text("brokerName=broker-a\n")
        (folder / "secret.txt").write_text("a-long-random-text\n")
        yield {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "NAMESRV_ADDR": names,
            "AEROBEE_METRICS_PROM_EXPORTER_PORT": str(broker.ports.metrics),
            "CONSOLE": f"127.0.0.1:{console}",
        }


@pytest.mark.parametrize("block", CASES)
def test_the_commands_of_a_page_do_what_it_says(
    block: str,
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if "curl" in block and shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    for name in [name for name in os.environ if name.startswith("AEROBEE")]:
        monkeypatch.delenv(name)
    for name, text in place.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(place["HOME"])
    here = (
        block.replace("127.0.0.1:5557", f"127.0.0.1:{place['AEROBEE_METRICS_PROM_EXPORTER_PORT']}")
        .replace("127.0.0.1:9876", place["NAMESRV_ADDR"])
        .replace("localhost:8088", place["CONSOLE"])
        .replace("/etc/aerobee/", "")
        .replace("\\\n", " ")
    )
    if "-d" not in here:  # A change is answered with a question, 428.
        here = here.replace("curl -s ", "curl -sf ")
    for command in here.splitlines():
        code = run(command)
        assert code == 0 or may_fail(command, code), (command, code, *capfd.readouterr())


def run(command: str) -> int:
    """Its exit code; of `aerobee` alone in this process, which is quicker."""
    if command.startswith("aerobee ") and not set(command) & set("|<>;&$"):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command)[1:])
        return int(ended.value.code or 0)
    done = subprocess.run(["/bin/sh", "-e", "-c", command], check=False, timeout=WITHIN_S)
    return done.returncode


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
            assert anchor in known, f"{target}#{anchor}"
