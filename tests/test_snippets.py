"""What a reader copies first: the steps of the README, settings, and brokers that pages start."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kit.pages import OPERATIONS, blocks
from tests.kit.ports import free_block, free_port
from tests.kit.process import Child

if TYPE_CHECKING:
    from tests.conftest import StartBroker

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SETTINGS = re.compile(r"^```(yaml|properties)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ACCOUNTS = "globalWhiteRemoteAddresses"
"""In the block of a page that is `plain_acl.yml`, and no settings."""
WITH_SETTINGS = [ROOT / "docs" / "dedupe.md", *sorted(OPERATIONS.glob("*.md"))]
FILES = [
    pytest.param(kind, text, id=f"{page.stem}-{number}")
    for page in WITH_SETTINGS
    for number, (kind, text) in enumerate(SETTINGS.findall(page.read_text("utf-8")))
    if ACCOUNTS not in text
]
NAMESRV = "127.0.0.1:9876"
WITHIN_S = 60


def environment(**more: str) -> dict[str, str]:
    """That of a shell in which nothing of ours is set."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AEROBEE")}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | more


def said(command: str, place: Path, **more: str) -> str:
    """What a command of a page prints. Raises: AssertionError when it fails."""
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", command],
        cwd=place,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_the_first_steps_send_and_receive(start_broker: StartBroker, tmp_path: Path) -> None:
    text = README.read_text("utf-8")
    steps = re.findall(r"^\.venv/bin/(aerobee .+)$", text, re.MULTILINE)
    assert [step.split()[1] for step in steps] == ["topic", "produce", "consume"]
    names = start_broker().namesrv_address
    printed = [said(step, tmp_path, NAMESRV_ADDR=names) for step in steps]
    assert "hello" in printed[-1]
    assert "TagA" in printed[-1]


def test_the_first_program_sends_and_receives(start_broker: StartBroker) -> None:
    (program,) = (one for one in PYTHON.findall(README.read_text("utf-8")) if "asyncio" in one)
    assert NAMESRV in program
    names = start_broker().namesrv_address
    command = [sys.executable, "-W", "error", "-c", program.replace(NAMESRV, names)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "b'hello'"


@pytest.mark.parametrize(("kind", "text"), FILES)
def test_settings_of_a_page_are_settings(kind: str, text: str, tmp_path: Path) -> None:
    name = "broker.yaml" if kind == "yaml" else "broker.conf"
    (tmp_path / name).write_text(text, "utf-8")
    shown = said(f"aerobee config check {name} --all", tmp_path)
    known = {key.replace("_", "") for key in re.findall(r"^\s*(\w+):", shown, re.MULTILINE)}
    named = re.findall(r"^\s*(\w+)(?:: |=)[^{\n]+$", text, re.MULTILINE)
    assert {key.replace("_", "").lower() for key in named} <= known


class Start(NamedTuple):
    """A broker that a page starts: what is there before, and what is asked of it then."""

    page: str
    words: str
    """In the command."""
    before: str = ""
    after: tuple[str, ...] = ()
    account: str = ""


STARTS = [
    Start(
        "access.md",
        "aclEnable",
        after=("aerobee topic create orders", "aerobee produce orders paid"),
        account="the-admin:a-long-random-text",
    ),
    Start("access.md", "authenticationEnabled"),
    Start(
        "tls.md",
        "tlsServerCertPath",
        before="aerobee certs dev --dir certs",
        after=(
            "aerobee context add dev -n 127.0.0.1:9876 --ca-file certs/ca.pem",
            "aerobee topic list --context dev",
        ),
    ),
    Start("grpc.md", "grpcPort", after=("aerobee topic create Orders --type normal",)),
    Start("replication.md", "--shadow-of", after=("aerobee topic list", "aerobee cluster info")),
]


def starts(page: Path) -> list[str]:
    """The commands of a page that start a broker."""
    lines = "".join(blocks(page)).splitlines()
    return [line for line in lines if line.startswith("aerobee broker run")]


def test_every_start_of_the_pages_is_run() -> None:
    shown = [(page.name, line) for page in OPERATIONS.glob("*.md") for line in starts(page)]
    ours = [(one.page, one.words) for one in STARTS]
    assert len(shown) == len(ours)
    for page, line in shown:
        assert any(page == name and words in line for name, words in ours), line


@pytest.mark.parametrize("start", STARTS, ids=lambda one: f"{one.page}-{one.words}")
def test_a_broker_that_a_page_starts_serves(start: Start, tmp_path: Path) -> None:
    page = OPERATIONS / start.page
    (command,) = (line for line in starts(page) if start.words in line)
    commands = "".join(blocks(page)).splitlines()
    for other in filter(None, (start.before, *start.after)):
        assert other in commands or start.account or start.words == "--shadow-of", other
    accounts = [text for _, text in SETTINGS.findall(page.read_text("utf-8")) if ACCOUNTS in text]
    (tmp_path / "conf").mkdir()
    for text in accounts:
        (tmp_path / "conf" / "plain_acl.yml").write_text(text, "utf-8")
        (tmp_path / "conf" / "plain_acl.yml").chmod(0o600)
    if start.before:
        said(start.before, tmp_path)
    names = free_port()
    with serving(command, tmp_path, names):
        user, _, secret = start.account.partition(":")
        if start.words == "authenticationEnabled":
            user = "admin"
            secret = (tmp_path / "data/config/first-admin.secret").read_text("utf-8").strip()
        more = {
            "NAMESRV_ADDR": f"127.0.0.1:{names}",
            "HOME": str(tmp_path),
            "AEROBEE_ACCESS_KEY": user,
            "AEROBEE_SECRET_KEY": secret,
        }
        more = {name: text for name, text in more.items() if text}
        for step in start.after or ("aerobee topic list",):
            said(step.replace("9876", str(names)), tmp_path, **more)


def serving(command: str, place: Path, names: int) -> Child:
    """That broker, small, on ports of its own, when it serves."""
    ports = free_block()
    settings = {
        "listenPort": ports.listen,
        "vipListenPort": ports.vip,
        "namesrvListenPort": names,
        "metricsPromExporterPort": ports.metrics,
        "consolePort": 0,
        "bindAddress": "127.0.0.1",
        "mappedFileSizeCommitLog": 4 << 20,
        "maxHashSlotNum": 1_000,
        "maxIndexNum": 4_000,
    }
    words = shlex.split(command.replace("grpcPort=8081", f"grpcPort={free_port()}"))
    if "--data" in words:
        at = words.index("--data")
        del words[at : at + 2]
    sets = [f"--set={name}={value}" for name, value in settings.items()]
    program = [sys.executable, "-m", *words, "--data", "data", *sets]
    child = Child(program, log=place / "broker.log", env=environment(), at=place)
    child.read_until("aerobee ready ", within_s=WITHIN_S)
    return child
