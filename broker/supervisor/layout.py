"""Whether a data directory fits the number of brokers: no start hides messages.

One broker has its store in the data directory itself, several have theirs in `broker-0`, `broker-1`
… below it. A directory of the other kind, or of more brokers, is refused with what to do; nothing
is moved without being asked.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aerobee.broker.supervisor.member_settings import member_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.disk import Disk

__all__ = ["layout_problem"]

STORE: Final = ("commitlog", "consumequeue", "checkpoint", "config/topics.json")
"""What only a broker makes."""
MEMBER: Final = re.compile(r"broker-(\d{1,3})", re.ASCII)
STAYS: Final = frozenset({"conf", "lock", "namesrv.lock"})
SHARED: Final = "config/kvConfig.json"
"""Of the name server, which is the supervisor's."""


def layout_problem(config: BrokerConfig, disk: Disk) -> str | None:
    """Why the data directory is not for so many brokers, and what to do; None: it is. Blocking.

    Raises: OSError.
    """
    root, count = _path(config.store.store_path_root_dir), config.broker.broker_count
    if not disk.exists(root):
        return None
    members = sorted(_members(root, disk))
    if count == 1:
        if not members:
            return None
        return (
            f"{root} has the stores of several brokers ({_names(members)}): set brokers:"
            f" {members[-1] + 1}; to serve one of them alone, give its directory as"
            f" storePathRootDir, {member_directory(str(root), members[0])}, and its brokerName,"
            f" {config.broker.broker_name}-{members[0]}"
        )
    if _is_store(root, disk):
        return (
            f"{root} has the store of one broker: set brokers: 1, or make it that of broker 0:"
            f" {' && '.join(_moves(config, root, disk))}"
        )
    more = [number for number in members if number >= count]
    if more:
        return (
            f"{root} has stores of more brokers ({_names(more)}), whose messages nobody would find:"
            f" set brokers: {more[-1] + 1}; when everything in them is consumed, move them away"
        )
    return None


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _is_store(path: Path, disk: Disk) -> bool:
    return any(disk.exists(path / one) for one in STORE)


def _members(root: Path, disk: Disk) -> Iterator[int]:
    for name in disk.folders(root):
        match = MEMBER.fullmatch(name)
        if match and _is_store(root / name, disk):
            yield int(match[1])


def _names(numbers: list[int]) -> str:
    return ", ".join(f"broker-{number}" for number in numbers)


def _moves(config: BrokerConfig, root: Path, disk: Disk) -> Iterator[str]:
    """The commands that make the store of one broker that of broker 0."""
    entries = [
        name for name in sorted(disk.listdir(root)) if name not in STAYS and not MEMBER.match(name)
    ]
    yield f"cd {shlex.quote(str(root))}"
    yield "mkdir -p broker-0"  # once more, after it was interrupted
    yield f"mv {shlex.join(entries)} broker-0/"
    if disk.exists(root / SHARED):
        yield f"mkdir -p config && cp broker-0/{SHARED} config/"
    log = config.store.store_path_commit_log
    if log and _path(log).parent != root:
        place = shlex.quote(str(_path(log)))
        yield f"mkdir -p {place}/broker-0 && mv {place}/[0-9]* {place}/broker-0/"
