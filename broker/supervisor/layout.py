"""Whether a data directory fits the number of brokers: no start hides messages.

One broker has its store in the data directory itself, several have theirs in `broker-0`, `broker-1`
… below it. A directory of the other kind, or of more brokers, is refused with what to do; nothing
is moved without being asked.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aerobee.broker.config.members import member_directory
from aerobee.store.format.names import CONFIG, segment_start
from aerobee.store.tools.locations import MEMBER, STORE_SIGNS, is_store, members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.disk import Disk

STAYS: Final = frozenset({"conf", "lock", "namesrv.lock"})
SHARED: Final = ("kvConfig.json", "users.json", "acls.json")
"""In CONFIG: of the name server, which is the supervisor's, and what all brokers share."""


def layout_problem(config: BrokerConfig, disk: Disk) -> str | None:
    """Why the data directory is not for so many brokers, and what to do; None: it is. Blocking.

    Raises: OSError.
    """
    root, count = _path(config.store.store_path_root_dir), config.broker.broker_count
    if not disk.exists(root):
        return None
    names = sorted(members(root, disk))
    if count == 1:
        if not names:
            return None
        return (
            f"{root} has the stores of several brokers ({_names(names)}): set brokers:"
            f" {names[-1] + 1}; to serve one of them alone,"
            f" {_alone(config, root, names[0], disk)}"
        )
    if _is_of_one(config, root, disk):
        return (
            f"{root} has the store of one broker: set brokers: 1, or make it that of broker 0:"
            f" {' && '.join(_moves(config, root, disk))}"
        )
    more = [number for number in names if number >= count]
    if more:
        return (
            f"{root} has stores of more brokers ({_names(more)}), whose messages nobody would find:"
            f" set brokers: {more[-1] + 1}; when everything in them is consumed, move them away"
        )
    return None


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _log(config: BrokerConfig) -> Path | None:
    """The directory of the commit log, where it has a setting of its own."""
    log = config.store.store_path_commit_log
    return _path(log) if log else None


def _is_of_one(config: BrokerConfig, root: Path, disk: Disk) -> bool:
    """Whether one broker has its store here: a log that stays where it is set says so by its
    segments.
    """
    log = _log(config)
    if log is None:
        return is_store(root, disk)
    signs = (root / sign for sign in STORE_SIGNS)
    return _has_segments(log, disk) or any(
        disk.exists(sign) for sign in signs if not log.is_relative_to(sign)
    )


def _has_segments(log: Path, disk: Disk) -> bool:
    return disk.is_directory(log) and any(
        segment_start(name) is not None for name in disk.listdir(log)
    )


def _names(numbers: list[int]) -> str:
    return ", ".join(f"broker-{number}" for number in numbers)


def _alone(config: BrokerConfig, root: Path, number: int, disk: Disk) -> str:
    """The settings of a broker that serves the store of one of several, in words."""
    parts = [f"give its directory as storePathRootDir, {member_directory(str(root), number)}"]
    if log := _log(config):
        parts.append(f"its log as storePathCommitLog, {member_directory(str(log), number)}")
    parts.append(f"and its brokerName, {config.broker.broker_name}-{number}")
    if shared := _shared(root, disk):
        place = f"{member_directory(str(root), number)}/{CONFIG}"
        parts.append(f"with {', '.join(shared)} of {root / CONFIG} copied to {place}")
    return ", ".join(parts)


def _shared(root: Path, disk: Disk) -> list[str]:
    return [name for name in SHARED if disk.exists(root / CONFIG / name)]


def _moves(config: BrokerConfig, root: Path, disk: Disk) -> Iterator[str]:
    """The commands that make the store of one broker that of broker 0.

    Interrupted anywhere, they are told once more, for what is left.
    """
    log = _log(config)
    entries = [
        name
        for name in sorted(disk.listdir(root), key=lambda name: (name in STORE_SIGNS, name))
        if name not in STAYS
        and name != CONFIG
        and not MEMBER.match(name)
        and not (log and log.is_relative_to(root / name))
    ]
    yield f"cd {shlex.quote(str(root))}"
    yield f"mkdir -p broker-0/{CONFIG}"
    if log and _has_segments(log, disk):
        place = shlex.quote(str(log))
        yield f"mkdir -p {place}/broker-0"
        yield f"mv {place}/[0-9]* {place}/broker-0/"
    if disk.is_directory(root / CONFIG):
        shared = _shared(root, disk)
        own = sorted(set(disk.listdir(root / CONFIG)) - set(SHARED))
        for verb, names in (("cp", shared), ("mv", own)):
            if names:
                paths = shlex.join(f"{CONFIG}/{name}" for name in names)
                yield f"{verb} {paths} broker-0/{CONFIG}/"
    if entries:
        yield f"mv {shlex.join(entries)} broker-0/"
