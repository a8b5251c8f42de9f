"""The file that keeps where a stream began, for restarts before the first checkpoint.

Spark asks a Python source where the stream begins, but stores the answer only after batch 0. A
restart before that asks again, when "latest" has another value. One small JSON file per source,
below the user's `stateLocation`, keeps the first answer.

The file is created, never replaced: a second run reads what the first one wrote. On a local disk
that is atomic, and HDFS refuses to rename onto a file; object stores have neither, so of two first
starts within the same second the later one wins, and both read the file that remains.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyarrow.fs import FileSystem

    from aerobee.spark.offsets import NestedOffsets

log = logging.getLogger(__name__)

VERSION = 1
NAME_DIGITS = 16


class Start(NamedTuple):
    """The content of the file."""

    source: str
    """The source as the user's options describe it."""
    starting: str
    """A description of the position that was resolved."""
    offsets: NestedOffsets


class StateLocation:
    """The file of one source below a URI (`file:`, `s3:`, `gs:`, `hdfs:`) or an absolute path.

    Raises: ConfigurationError with the reason, if the location cannot be read or written.
    """

    def __init__(self, location: str, source: str) -> None:
        self.location = location
        self.source = source
        digest = hashlib.sha256(source.encode()).hexdigest()[:NAME_DIGITS]
        self.name = f"aerobee-start-{digest}.json"
        self._files, folder = _opened(location)
        self._folder = folder.rstrip("/")
        self._path = f"{self._folder}/{self.name}"

    @property
    def place(self) -> str:
        """The path or URI of the file, for messages."""
        return f"{_shown(self.location).rstrip('/')}/{self.name}"

    def read(self) -> NestedOffsets | None:
        """Read the stored offsets, None before the first start."""
        text = self._reach(self._text)
        if text is None:
            return None
        start = self._parsed(text)
        log.info("the stream of %s begins where %s says", self.source, self.place)
        return start.offsets

    def settle(self, starting: str, offsets: NestedOffsets) -> NestedOffsets:
        """Store these offsets unless the file exists already; returns the stored ones."""
        start = Start(self.source, starting, offsets)
        content = json.dumps({"version": VERSION, **start._asdict()}, indent=1)
        self._reach(lambda: self._create(content.encode()))
        text = self._reach(self._text)
        if text is None:
            raise ConfigurationError(f"stateLocation: {self.place} was written, but is not there")
        kept = self._parsed(text)
        if kept.starting != starting:
            log.warning(
                "stateLocation: %s was resolved from %s, not from %s, and stays; "
                "to begin elsewhere, remove it together with the checkpoint",
                self.place,
                kept.starting,
                starting,
            )
        return kept.offsets

    def _text(self) -> bytes | None:
        try:
            with self._files.open_input_stream(self._path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def _create(self, content: bytes) -> None:
        """Create the file atomically: write a temporary file, then rename it."""
        if self._text() is not None:
            return
        draft = f"{self._path}.{uuid4().hex}"
        self._files.create_dir(self._folder, recursive=True)
        try:
            with self._files.open_output_stream(draft) as stream:
                stream.write(content)
            if self._files.type_name == "local":
                with suppress(FileExistsError):
                    os.link(draft, self._path)
            elif self._text() is None:
                self._files.move(draft, self._path)
        finally:
            with suppress(OSError):
                self._files.delete_file(draft)

    def _reach(self, step: Callable[[], bytes | None]) -> bytes | None:
        try:
            return step()
        except OSError as error:
            raise ConfigurationError(
                f"stateLocation: {self.place} cannot be used: {error.strerror or error}"
            ) from error

    def _parsed(self, text: bytes) -> Start:
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']}")
            offsets: NestedOffsets = {
                topic: {
                    broker: {str(int(queue)): int(offset) for queue, offset in queues.items()}
                    for broker, queues in brokers.items()
                }
                for topic, brokers in document["offsets"].items()
            }
            return Start(document["source"], document["starting"], offsets)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"stateLocation: {self.place} is not what this source writes ({error}); "
                "remove it to resolve the start anew"
            ) from error


def _shown(location: str) -> str:
    """A path, or a URI without its credentials and settings."""
    parts = urlsplit(location)
    if not parts.scheme:
        return location
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _opened(location: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import FileSystem

    try:
        files, path = FileSystem.from_uri(location)
    except (ValueError, OSError, NotImplementedError) as error:
        # Without Hadoop the message has a hundred more lines, the paths of the search.
        reason = str(error).partition("\n")[0].replace(location, _shown(location))
        raise ConfigurationError(
            f"stateLocation: {_shown(location)!r} is neither an absolute path nor a URI that "
            f"pyarrow.fs opens here (file:, s3:, gs:, hdfs:): {reason}"
        ) from error
    return files, path
