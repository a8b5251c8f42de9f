"""The commands by which the store of one broker becomes that of broker 0, run as they are told."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.members import member_settings
from aerobee.broker.supervisor.layout import layout_problem
from aerobee.store.files.disk import Disk
from tests.broker.config.test_members import loaded

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig

SEGMENT = f"{0:020}"
OWN = ("checkpoint", "consumequeue/T/0/u", "config/topics.json", "savedtopics", "timerwheel")
SHARED = ("config/kvConfig.json", "config/users.json", "config/acls.json")
COUNT_OF_COMMANDS = 7


def config_of(root: Path, log: str | None, count: int = 2) -> BrokerConfig:
    """The configuration of so many brokers on this directory."""
    own = [] if log is None else [f"storePathCommitLog={root / log}"]
    return loaded(f"brokers={count}", f"storePathRootDir={root}", *own)


def store_of_one(root: Path, log: str | None) -> None:
    """Files as a broker has them."""
    for name in (*OWN, *SHARED, "conf/plain_acl.yml", f"{log or 'commitlog'}/{SEGMENT}"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


def commands(config: BrokerConfig) -> list[str]:
    """Those that the refusal tells; none where nothing is refused."""
    problem = layout_problem(config, Disk())
    return problem.partition("broker 0: ")[2].split(" && ") if problem else []


def looked_in(config: BrokerConfig) -> list[str]:
    """Root and log of broker 0, as its process gets them."""
    settings = member_settings(config, 0, [])
    root = settings["storePathRootDir"]
    return [root, settings.get("storePathCommitLog", f"{root}/commitlog")]


@pytest.mark.parametrize("log", [None, "commitlog", "mylog", "a/log", "../log"])
def test_what_is_moved_is_where_broker_0_looks_wherever_the_moves_were_interrupted(
    tmp_path: Path, log: str | None
) -> None:
    for done in range(COUNT_OF_COMMANDS + 1):
        root = tmp_path / f"{done} t" / "data"
        store_of_one(root, log)
        config = config_of(root, log)
        first = commands(config)[: done + 1]
        assert len(first) <= COUNT_OF_COMMANDS
        subprocess.run(["sh", "-ec", " && ".join(first)], check=True)
        if rest := commands(config):
            subprocess.run(["sh", "-ec", " && ".join(rest)], check=True)
        assert not commands(config)
        own_root, own_log = map(type(root), looked_in(config))
        assert (own_log / SEGMENT).exists()
        for name in (*OWN, *SHARED):
            assert (own_root / name).read_text() == name
        for name in (*SHARED, "conf/plain_acl.yml"):
            assert (root / name).read_text() == name


def test_the_way_back_names_every_setting_and_what_all_brokers_shared(tmp_path: Path) -> None:
    store_of_one(tmp_path / "broker-0", "../log")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "users.json").touch()
    problem = layout_problem(config_of(tmp_path, "log", count=1), Disk())
    assert problem is not None
    assert f"as storePathRootDir, {tmp_path}/broker-0, " in problem
    assert f"as storePathCommitLog, {tmp_path}/log/broker-0, " in problem
    assert f"users.json of {tmp_path}/config copied to {tmp_path}/broker-0/config" in problem
