"""The parts of a data directory on file systems of their own, under a load of every feature.

Java's brokers store there: log, queues, index, timers and tables each may be a mount point, or a
link to a directory on another disk, and the directory above need not be the broker's. A mount of
its own has a `lost+found` that only root may read. Each cycle is one such directory: every feature
works over lives that end by kills, the log rolls in every life, and then the books are closed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from aerobee.store.format.names import COMMIT_LOG, segment_start
from tests.faults.feature_clients import call
from tests.faults.feature_kills import SETTINGS, Life
from tests.kit.broker_process import BrokerProcess, MiB
from tests.kit.campaign import Campaign
from tests.kit.mounts import mount, unmount
from tests.kit.raw_client import RawConnection, properties_text, send_fields, topic_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.campaign import Run

CREATE_TOPIC, SEND_MESSAGE_V2, QUERY_MESSAGE = 17, 310, 12
PARTS = ("commitlog", "consumequeue", "index", "config", "timerlog")
STRANGER = 65_534
"""The owner of what is not the broker's."""
NO_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""A root that is a user as any other: what is not its own it may not change."""
KILLS = 2
FILLING = 40
FILLER = "Filling"
MOUNT_BYTES = 96 * MiB
INDEXED_WITHIN_S = 20.0


class Plain(BrokerProcess):
    """A broker of a user that may write its own directories and no others."""

    def command(self) -> list[str]:
        return [*NO_RIGHTS, *super().command()]


def strange(path: Path, mode: int = 0o755) -> Path:
    """A directory of somebody else."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, STRANGER, STRANGER)
    path.chmod(mode)
    return path


@contextlib.contextmanager
def mounted(*paths: Path) -> Iterator[None]:
    """A file system of its own at each, in this order, with a `lost+found` nobody may read."""
    with contextlib.ExitStack() as open_mounts:
        for path in paths:
            path.mkdir(parents=True, exist_ok=True)
            mount("-t", "tmpfs", "-o", f"size={MOUNT_BYTES},mode=0700", "tmpfs", str(path))
            open_mounts.callback(unmount, path)
            strange(path / "lost+found", 0o700)
        yield


@contextlib.contextmanager
def mounts(base: Path) -> Iterator[BrokerProcess]:
    """Everything is a mount point, the data directory too, in a directory that is not ours."""
    data = strange(base) / "data"
    with mounted(data, *(data / part for part in PARTS)):
        yield Plain(data=data, log_path=base.with_suffix(".log"))


@contextlib.contextmanager
def elsewhere(base: Path) -> Iterator[BrokerProcess]:
    """The log is on another disk, below a directory that is not ours."""
    disk = base / "disk"
    with mounted(disk):
        log = disk / "log"
        log.mkdir()
        strange(disk)
        data = base / "data"
        data.mkdir()
        yield Plain(data=data, settings={"storePathCommitLog": str(log)})


@contextlib.contextmanager
def links(base: Path) -> Iterator[BrokerProcess]:
    """Each part is a link to a directory of another disk, whose root is not ours."""
    data, disk = base / "data", base / "disk"
    with mounted(disk):
        data.mkdir()
        for part in PARTS:
            (disk / part).mkdir()
            (data / part).symlink_to(disk / part)
        strange(disk)
        yield Plain(data=data)


@contextlib.contextmanager
def bound(base: Path) -> Iterator[BrokerProcess]:
    """Each part is bound in from elsewhere on the same disk, as volumes of a container may be."""
    data = base / "data"
    with contextlib.ExitStack() as open_mounts:
        for part in PARTS:
            (base / "host" / part).mkdir(parents=True)
            (data / part).mkdir(parents=True)
            mount("--bind", str(base / "host" / part), str(data / part))
            open_mounts.callback(unmount, data / part)
        yield Plain(data=data)


LAYOUTS = (mounts, elsewhere, links, bound)


def fill(broker: BrokerProcess, life: int) -> None:
    """Roll the log more than once; every message is taken, and found by its key."""
    with RawConnection(broker.address, timeout_s=20.0) as connection:
        call(connection, CREATE_TOPIC, topic_fields(FILLER, 1))
        for number in range(FILLING):
            fields = send_fields(FILLER, 0, i=properties_text(KEYS=f"k{life}-{number}"))
            call(connection, SEND_MESSAGE_V2, fields, bytes([life]) * 60_000)


def find(broker: BrokerProcess, life: int) -> None:
    """The index leads to every message of a life; after a start it is built beside the load."""
    asked = {"topic": FILLER, "maxNum": "2", "beginTimestamp": "0", "endTimestamp": str(2**60)}
    with RawConnection(broker.address, timeout_s=20.0) as connection:
        for number in range(0, FILLING, 9):
            key = f"k{life}-{number}"
            until = time.monotonic() + INDEXED_WITHIN_S
            while (answer := connection.call(QUERY_MESSAGE, {**asked, "key": key})).code:
                assert time.monotonic() < until, f"{key}: {answer.code} {answer.remark}"
                broker.let_run(0.05)
            assert bytes([life]) * 1_000 in answer.body


def of_java(directory: Path) -> None:
    """A directory that the brokers of Java open: full segments, and nothing else of ours."""
    sizes = {}
    for path in directory.iterdir():
        if path.name != "lost+found":
            assert segment_start(path.name) is not None, path
            sizes[path.name] = path.stat().st_size
    assert set(sizes.values()) <= {SETTINGS["mappedFileSizeCommitLog"]}, sizes


def one_layout(run: Run) -> None:
    """One directory, from its first start to the end of its books."""
    cycle = run.cycle()
    base = run.directory / f"layout-{run.number}"
    with LAYOUTS[cycle.number % len(LAYOUTS)](base) as broker:
        life = Life(run, cycle.rng)
        broker.settings = dict(life.broker.settings) | dict(broker.settings)
        life.broker = broker
        log = broker.settings.get("storePathCommitLog") or broker.data / COMMIT_LOG
        with broker:
            life.make_topics()
            for number in range(KILLS):
                fill(broker, number + 1)
                life.cycle(cycle)
                find(broker, number + 1)
                of_java(type(broker.data)(str(log)))
            life.end()
    run.counts["messages that rolled the log"] += KILLS * FILLING


def layouts(run: Run) -> None:
    """One layout after the other. Skipped, saying why, where nothing can be mounted."""
    if shutil.which(NO_RIGHTS[0]) is None or subprocess.run([*NO_RIGHTS, "true"]).returncode:
        pytest.skip("faults: layouts need setpriv and the right to give up rights")
    while run.more:
        one_layout(run)
        run.done()
        if run.directory.exists():
            shutil.rmtree(run.directory / f"layout-{run.number - 1}", ignore_errors=True)


L1 = Campaign(
    key="L1",
    title="log, queues, index, timers and tables each on a mount of its own, parents not ours",
    unit="layouts",
    t1=2,
    t2=40,
    run=layouts,
)
