"""What reads files that somebody else may have written, and what must hold of it for any bytes."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.load import load_config
from aerobee.broker.errors import TableDamaged
from aerobee.broker.users.acl_text import read_acl
from aerobee.broker.users.plain_acl import Perm
from aerobee.store.errors import StoreRefused
from aerobee.store.format.record import read
from aerobee.store.tools.verify import verify
from tests.broker.desk import body_of, said
from tests.faults.flips import QUEUES, TOPICS, Template, make_templates, with_broker

if TYPE_CHECKING:
    from tests.broker.desk import Desk

STEP = 8
"""Bytes of an input that describe one damage."""
STEPS_MAX = 6


@cache
def scratch() -> Path:
    """A folder in memory where there is one; it goes with the process."""
    shared = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
    KEPT.append(folder)
    return Path(folder.name)


KEPT: list[tempfile.TemporaryDirectory[str]] = []


def configuration(data: bytes) -> None:
    """A file is a configuration, or refused with our own error."""
    suffix = (".yaml", ".conf")[data[:1] > b"\x7f"]
    path = scratch() / f"broker{suffix}"
    path.write_bytes(data[1:])
    with suppress(ConfigurationError):
        load_config(
            path, environ={"HOME": str(scratch())}, cpu_count=2, host_addresses=["127.0.0.1"]
        )


def acl(data: bytes) -> None:
    """A `plain_acl.yml` has accounts, or problems that name the file; an account has its rights."""
    found = read_acl(data, "plain_acl.yml")
    assert len(found.places) == len(found.accounts)
    assert all(problem.startswith("plain_acl.yml") for problem in found.problems)
    for account in found.accounts:
        assert account.access_key
        assert account.secret
        for perm in (account.default_topic, account.default_group, *account.topics.values()):
            assert not perm & ~(Perm.PUB | Perm.SUB)


@cache
def templates() -> tuple[Template, ...]:
    """A directory that was stopped, and one that a kill has left."""
    folder = scratch() / "templates"
    folder.mkdir()
    return make_templates(folder)


def directories(data: bytes) -> None:
    """A damaged directory is served or refused by name; nothing is handed out that was not sent."""
    if not data:
        return
    template = templates()[data[0] % 2]
    root = scratch() / "store"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template.root, root)
    for at in range(1, min(len(data), STEPS_MAX * STEP), STEP):
        damage(root, data[at : at + STEP].ljust(STEP, b"\0"))
    verify(root)
    with suppress(StoreRefused, TableDamaged):
        trio.run(with_broker, root, lambda desk: pull_all(desk, template))


def damage(root: Path, step: bytes) -> None:
    """Flip, cut, zero, grow, delete, swap or double one file."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    if not files:
        return
    kind, which, other, *rest = step
    path, second = files[which % len(files)], files[other % len(files)]
    content = bytearray(path.read_bytes())
    at = int.from_bytes(bytes(rest[:3]), "big") % max(len(content.rstrip(b"\0")), 1)
    match kind % 7:
        case 0 if content:
            content[at] ^= 1 << (rest[3] % 8)
        case 1:
            del content[at:]
        case 2 if content:
            content[at : at + 1 + rest[3]] = bytes(len(content[at : at + 1 + rest[3]]))
        case 3:
            content += bytes([rest[3]]) * (1 + rest[4])
        case 4:
            path.unlink()
            return
        case 5:
            content = bytearray(second.read_bytes())
        case 6:
            shutil.copy(path, path.with_name(path.name + "0"))
            return
    path.write_bytes(content)


async def pull_all(desk: Desk, template: Template) -> None:
    """Pull every queue to its end, and compare the bodies with what was sent."""
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            at: int | None = 0
            while at is not None:
                at = await pulled(desk, template, (topic, queue_id), at)


async def pulled(desk: Desk, template: Template, queue: tuple[str, int], at: int) -> int | None:
    """One pull; where the next one begins, or None at the end."""
    topic, queue_id = queue
    answer = await desk.pull(topic, at, queue_id=queue_id)
    following = None if answer.header is None else int(said(answer)["nextBeginOffset"])
    data, position = body_of(answer), 0
    while answer.code == 0 and position < len(data):
        record = read(data, position)
        body = bytes(record.body)
        assert body in template.sent[queue], body[:40]
        position += record.size
    return following if following is not None and following > at else None
