"""The files of ACL 1.0: `plain_acl.yml`, and every file of YAML below `acl/`, in one directory.

They are read at the start, where a mistake refuses it, and again when one of them has changed or on
SIGHUP, where a mistake leaves the rights as they are. Source: semantics §18.2 (FileWatchService).
"""

from __future__ import annotations

import shlex
import stat
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.access.plain_authority import Losses, PlainAuthority
from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.users.plain_acl import plain_table
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    from aerobee.broker.access.plain_authority import PlainTable
    from aerobee.broker.users.acl_text import AclText
    from aerobee.broker.users.plain_acl import PlainAccount
    from aerobee.remoting.server.channel import Channel

    CutOff = Callable[[Callable[[Channel], bool]], Awaitable[None]]
    """Closes the connections that it is true of."""


LOOK_S: Final = 0.5
"""How often the files are looked at; a change counts when a second look finds it complete."""
MAIN: Final = "plain_acl.yml"
FOLDER: Final = "acl"
SUFFIXES: Final = (".yml", ".yaml")
DEPTH_MAX: Final = 16
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

log = structlog.stdlib.get_logger(__name__)

Stamp = tuple[tuple[str, tuple[int, int, int, int]], ...]
"""The files, and what tells of each whether it has changed."""


class AclFiles:
    """Keeps the accounts of an authority as the files say. Also the task that watches them: when a
    change takes rights, it ends connections that have used them, with the requests held there.
    """

    def __init__(self, directory: Path, cut_off: CutOff, open_topics: Collection[str]) -> None:
        """`open_topics`: see `plain_table`."""
        self.directory = directory
        self.authority = PlainAuthority()
        self._cut_off = cut_off
        self._open_topics = open_topics
        self._read: Stamp = ()
        self._reload_due = False

    def load(self) -> None:
        """Read the files. Blocking. Raises: ConfigurationError with every problem."""
        self._read = stamp_of(self.directory)
        self.authority.replace(self._table())

    def reload(self) -> None:
        """Read the files again at the next look, changed or not."""
        self._reload_due = True

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Look for changes until cancelled."""
        task_status.started()
        seen = self._read
        while True:
            await trio.sleep(LOOK_S)
            stamp = await in_thread(stamp_of, self.directory)
            due, self._reload_due = self._reload_due, False
            if due or (stamp != self._read and stamp == seen):
                self._read = stamp
                await self._take_over()
            seen = stamp

    async def _take_over(self) -> None:
        try:
            losses = await in_thread(self._change)
        except ConfigurationError as error:
            for problem in error.problems:
                log.error("access.reload_refused", reason=problem)
            return
        self.authority.replace(losses.after)
        await self._cut_off(losses.concern)
        log.info("access.reloaded", accounts=len(losses.after.accounts))

    def _change(self) -> Losses:
        return Losses.between(self.authority.table, self._table())

    def _table(self) -> PlainTable:
        return plain_table(*read_accounts(self.directory), self._open_topics)


def read_accounts(directory: Path) -> tuple[list[PlainAccount], WhiteAddresses]:
    """The accounts of all files, and the addresses that need none. Blocking; logs warnings.

    Raises: ConfigurationError with every problem.
    """
    try:
        paths = paths_of(directory)
    except OSError as error:
        raise ConfigurationError([f"{error.filename}: {error.strerror}"]) from error
    texts = [text_of(path) for path in paths]
    problems = [problem for text in texts for problem in text.problems]
    accounts: dict[str, PlainAccount] = {}
    places: dict[str, str] = {}
    for text in texts:
        for account, place in zip(text.accounts, text.places, strict=True):
            key = account.access_key
            if key in accounts:
                problems.append(f"{place}: accessKey: {key} is in {places[key]} already")
            accounts[key], places[key] = account, place
    if problems:
        raise ConfigurationError(problems)
    for text in texts:
        for warning in text.warnings:
            log.warning("access.warning", text=warning)
    return [*accounts.values()], WhiteAddresses(address for text in texts for address in text.white)


def paths_of(directory: Path) -> list[Path]:
    """The main file and those of the folder. Without any, the main file is the missing one."""
    main = directory / MAIN
    others = files_below(directory / FOLDER, DEPTH_MAX)
    return [main, *others] if main.exists() or not others else others


def files_below(folder: Path, depth: int) -> list[Path]:
    """The files of YAML in a folder and its folders, in the order of their names."""
    files: list[Path] = []
    for path in sorted(folder.iterdir()) if depth and folder.is_dir() else ():
        # Hidden entries are the generations of a mounted secret, whose names are links to them.
        if path.name.startswith("."):
            continue
        if path.is_dir():
            files += files_below(path, depth - 1)
        elif path.suffix in SUFFIXES:
            files.append(path)
    return files


def stamp_of(directory: Path) -> Stamp:
    """The stamp by which one sees whether a file has changed, come or gone."""
    try:
        return tuple((str(path), version(path)) for path in paths_of(directory))
    except OSError:
        # Removed between the two calls: the next look sees it.
        return ()


def version(path: Path) -> tuple[int, int, int, int]:
    """The facts about a file that change with its content; links are followed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def text_of(path: Path) -> AclText:
    """The text of one file; a file that others may write has no text, but a problem."""
    # The parser is imported only where there is such a file.
    from aerobee.broker.users.acl_text import AclText, read_acl

    quoted = shlex.quote(str(path))
    problem = ""
    try:
        mode = path.stat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else None
        if content is None:
            problem = f"{path}: is no file"
        elif mode & OTHERS_WRITE:
            problem = f"{path}: others than its owner may change it: chmod go-w {quoted}"
    except FileNotFoundError:
        problem = (
            f"{path}: aclEnable and migrateAuthFromV1Enabled ask for this file: write it, or"
            " name its directory with aclConfigDir"
        )
    except OSError as error:
        problem = f"{path}: {error.strerror or error}"
    if problem or content is None:
        return AclText(str(path), problems=[problem])
    text = read_acl(content, str(path))
    if mode & stat.S_IROTH:
        text.warnings.append(f"{path}: everybody on this host may read it: chmod o-r {quoted}")
    return text
