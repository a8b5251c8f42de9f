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

from aerobee.broker.access.plain_acl import AclTable, Losses
from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.broker.config.files.entries import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from aerobee.broker.access.acl_text import AclText
    from aerobee.broker.access.plain_acl import PlainAccount, PlainAcl
    from aerobee.remoting.server.connection import Connection

    CutOff = Callable[[Callable[[Connection], bool]], Awaitable[None]]
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
    """Keeps the table of an authority as its files say. Also the task that watches them: when a
    change takes rights, it ends connections that have used them, with the requests held there.
    """

    def __init__(self, directory: Path, acl: PlainAcl, cut_off: CutOff) -> None:
        self.directory = directory
        self.acl = acl
        self._cut_off = cut_off
        self._read: Stamp = ()
        self._asked = False

    def load(self) -> None:
        """Read the files. Blocking. Raises: ConfigurationError with every problem."""
        stamp = self._stamp()
        table, warnings = self._table()
        self._read, self.acl.table = stamp, table
        for warning in warnings:
            log.warning("access.warning", text=warning)

    def reload(self) -> None:
        """Read the files again at the next look, changed or not."""
        self._asked = True

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Look for changes until cancelled."""
        task_status.started()
        seen = self._read
        while True:
            await trio.sleep(LOOK_S)
            stamp = await trio.to_thread.run_sync(self._stamp)
            asked, self._asked = self._asked, False
            if asked or (stamp != self._read and stamp == seen):
                await self._take_over(stamp)
            seen = stamp

    async def _take_over(self, stamp: Stamp) -> None:
        self._read = stamp
        before = self.acl.table
        try:
            await trio.to_thread.run_sync(self.load)
        except ConfigurationError as error:
            for problem in error.problems:
                log.error("access.reload_refused", reason=problem)
            return
        after = self.acl.table
        await self._cut_off(Losses.between(before, after).concern)
        log.info("access.reloaded", accounts=len(after.accounts))

    def _paths(self) -> list[Path]:
        """The main file and those of the folder. Without any, the main file is the missing one."""
        main = self.directory / MAIN
        others = self._below(self.directory / FOLDER, DEPTH_MAX)
        return [main, *others] if main.exists() or not others else others

    def _below(self, folder: Path, depth: int) -> list[Path]:
        found: list[Path] = []
        for path in sorted(folder.iterdir()) if depth and folder.is_dir() else ():
            # Hidden entries are the generations of a mounted secret, whose names are links to them.
            if path.name.startswith("."):
                continue
            if path.is_dir():
                found += self._below(path, depth - 1)
            elif path.suffix in SUFFIXES:
                found.append(path)
        return found

    def _stamp(self) -> Stamp:
        try:
            return tuple((str(path), version(path)) for path in self._paths())
        except OSError:
            # Removed between the two calls: the next look sees it.
            return ()

    def _table(self) -> tuple[AclTable, list[str]]:
        """The table and the warnings. Raises: ConfigurationError."""
        try:
            paths = self._paths()
        except OSError as error:
            raise ConfigurationError([f"{error.filename}: {error.strerror}"]) from error
        texts = [self._text(path) for path in paths]
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
        white = WhiteAddresses(address for text in texts for address in text.white)
        return AclTable(accounts, white), [one for text in texts for one in text.warnings]

    def _text(self, path: Path) -> AclText:
        """What one file says; a file that others may write says nothing, but a problem."""
        # The parser is imported only where there is such a file.
        from aerobee.broker.access.acl_text import AclText, read_acl

        quoted = shlex.quote(str(path))
        try:
            mode = path.stat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else None
        except OSError as error:
            return AclText(str(path), problems=[self._unreadable(path, error)])
        if content is None:
            return AclText(str(path), problems=[f"{path}: is no file"])
        if mode & OTHERS_WRITE:
            problem = f"{path}: others than its owner may change it: chmod go-w {quoted}"
            return AclText(str(path), problems=[problem])
        text = read_acl(content, str(path))
        if mode & stat.S_IROTH:
            text.warnings.append(f"{path}: everybody on this host may read it: chmod o-r {quoted}")
        return text

    def _unreadable(self, path: Path, error: OSError) -> str:
        if isinstance(error, FileNotFoundError):
            return (
                f"{path}: aclEnable and migrateAuthFromV1Enabled ask for this file: write it, or"
                " name its directory with aclConfigDir"
            )
        return f"{path}: {error.strerror or error}"


def version(path: Path) -> tuple[int, int, int, int]:
    """What of a file changes with its content; links are followed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
