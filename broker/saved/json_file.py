"""One table's JSON file: written whole and crash-safe, read from the file, else from its backup.

The files are RocketMQ's: a Java broker reads ours and we read a Java broker's, its bare integer
keys included. A file that does not decode is renamed to `<name>.corrupt-TIME`, never deleted; when
it has no backup, or one that does not decode either, the start is refused. Source: store format
§1.7 (ConfigManager).
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import structlog

from aerobee.broker.errors import TableDamaged
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json
from aerobee.store.format.names import SAVED_TOPICS
from aerobee.store.recovery.start_check import saved_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

T = TypeVar("T")

log = structlog.stdlib.get_logger(__name__)

OF_OTHERS: Final = 0o007
"""The permissions of users who are neither the owner nor in its group."""
REFERENCE_ESCAPED: Final = b'"$ref"', b'"\\u0024ref"'
"""In names of clients `$ref` is ordinary text; unescaped, fastjson takes it for a reference."""
UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, RecursionError, BodyError)
"""The errors of a reader for a document of another shape: a list for a table, a word or infinity
for a number, thousands of brackets in each other.
"""


class JsonFile:
    """A file of `config/`. Its directory is created with the first write."""

    def __init__(self, path: Path, disk: Disk, clock: Clock) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self.disk = disk
        self.clock = clock

    def load(self, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Pass the document to `read` and return its result; None: nothing was stored.

        `read` must leave its table unchanged when it raises one of UNREADABLE.
        Raises: TableDamaged; OSError.
        """
        content = self.content(self.path)
        if content is None:
            result = self.load_backup(read)
            # A blank one would take the place of the backup with the next write: a write that fails
            # in there would leave neither.
            if self.disk.exists(self.path):
                self.disk.remove(self.path)
            return result
        try:
            return read(document_of(content))
        except UNREADABLE as error:
            if self.content(self.backup) is None:
                raise TableDamaged(
                    f"{self.path} does not decode ({error}), and has no backup: restore it, or move"
                    " it away to start without"
                ) from error
            result = self.load_backup(read)
            self.set_aside(error)
            return result

    def load_backup(self, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """As `load`, from the backup: the file is missing, empty or does not decode."""
        content = self.content(self.backup)
        if content is None:
            return None
        try:
            result = read(document_of(content))
        except UNREADABLE as error:
            raise TableDamaged(
                f"{self.path} has no readable content and its backup {self.backup} does not decode"
                f" ({error}): restore one of them, or move the backup away to start without"
            ) from error
        log.warning("table.restored", path=str(self.path), backup=str(self.backup))
        return result

    def content(self, path: Path) -> bytes | None:
        """The bytes of a file, None when it is missing or blank. Raises: TableDamaged, OSError."""
        if not self.disk.exists(path):
            return None
        self.check_kind(path)
        return self.disk.read(path).strip() or None

    def check_kind(self, path: Path) -> None:
        """Refuse a link, which no write would keep, and a directory. Raises: TableDamaged."""
        if not self.disk.is_file(path):
            raise TableDamaged(f"{path} is a link or a directory: put the file itself in its place")

    def set_aside(self, error: Exception) -> None:
        """Rename an unreadable file, so that the next write does not overwrite it."""
        moment = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        corrupt = self.path.with_name(f"{self.path.name}.corrupt-{moment:%Y%m%dT%H%M%S}")
        self.disk.rename(self.path, corrupt)
        self.disk.sync_directory(self.path.parent)
        log.error("table.corrupt", path=str(self.path), moved_to=str(corrupt), reason=str(error))

    async def write(self, content: Mapping[str, Any] | list[bytes]) -> None:
        """Replace the content by a document, or by the pieces of its text; durably.

        Encoding and writing run in a thread. Raises: OSError.
        """
        await self.disk.in_thread(self.write_now, content)

    def write_now(self, content: Mapping[str, Any] | list[bytes]) -> None:
        """As `write`, blocking."""
        self.disk.mkdir(self.path.parent)
        text = b"".join(content) if isinstance(content, list) else msgspec.json.encode(content)
        self.disk.write_atomically(self.path, text.replace(*REFERENCE_ESCAPED))


class NotedFile(JsonFile):
    """A table that is missed: once it was saved, its name is in the mark of the topics, which is
    outside of `config/`. Invariant: no name is there before its file.
    """

    def write_now(self, content: Mapping[str, Any] | list[bytes]) -> None:
        """As `JsonFile.write_now`, then the mark, if there is one."""
        super().write_now(content)
        root = self.path.parent.parent
        names = saved_tables(self.disk, root)
        if names and self.path.name not in names:
            text = "\n".join([*names, self.path.name])
            self.disk.write_atomically(root / SAVED_TOPICS, text.encode(), backup=False)


class PrivateFile(JsonFile):
    """A file with secrets or rights. It is read as it is or not at all: an older version might give
    back what was taken away, so there is no backup; and nobody but its owner and the owner's group
    has access to it.
    """

    def load(self, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """As `JsonFile.load`. Raises: TableDamaged naming file and remedy; OSError."""
        if not self.disk.exists(self.path):
            return None
        self.check_kind(self.path)
        if self.disk.mode(self.path) & OF_OTHERS:
            command = f"chmod 600 {shlex.quote(str(self.path))}"
            raise TableDamaged(f"{self.path} is open to other users of this machine: {command}")
        try:
            return read(document_of(self.disk.read(self.path)))
        except UNREADABLE as error:
            raise TableDamaged(
                f"{self.path} does not decode ({error}): repair or restore it; without it nobody"
                " knows who may do what, so there is no start"
            ) from error

    def write_now(self, content: Mapping[str, Any] | list[bytes]) -> None:
        """As `JsonFile.write_now`, without a backup."""
        self.disk.mkdir(self.path.parent)
        text = b"".join(content) if isinstance(content, list) else msgspec.json.encode(content)
        self.disk.write_atomically(self.path, text, backup=False)


def document_of(content: bytes) -> Mapping[str, Any]:
    """Decode a JSON object. Raises: ValueError, BodyError."""
    document = relaxed_json.decode(content, most_brackets=None)
    if not isinstance(document, dict):
        raise ValueError("the document is no JSON object")
    return document
