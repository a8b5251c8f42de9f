"""Directories where Spark keeps tables, for the small files that jobs store beside the rows.

Names and bytes, on any file system that Spark reaches by a path: local, HDFS, an object store. A
file is written atomically where the file system can rename.

It uses Hadoop's API and not pyarrow.fs, as `stateLocation` does: these files belong to tables that
Spark writes with the file systems, endpoints and credentials of its configuration. pyarrow has none
of these: it opens no `s3a:`, and `hdfs:` only where libhdfs is installed.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.errors import AerobeeError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DRAFT = ".draft"
OF_PATTERNS = re.compile(r"[\\\[\]{}*?]")


class AlreadyRunningError(AerobeeError):
    """Another run of the same job is active; trying again helps when it has ended."""

    retryable = True


def literal(path: str) -> str:
    """A path for a read of Spark, which takes it for a pattern, but writes to it as it is."""
    return OF_PATTERNS.sub(r"\\\g<0>", path)


def check_apart(spark: SparkSession, output: str, *read: str | None) -> None:
    """Refuse to write to a path that is, is in, or has in it what is read.

    Overwriting would delete that first. Raises: ConfigurationError.
    """
    written = Place(spark, output).whole
    for path in filter(None, read):
        source = Place(spark, path).whole
        if f"{written}/".startswith(f"{source}/") or source.startswith(f"{written}/"):
            raise ConfigurationError(
                f"--output {output} and {path}, which is read, are in one another: give another "
                "path"
            )


def _jvm(spark: SparkSession) -> Any:
    """The JVM of a session's driver."""
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm


class Place:
    """One directory, by a path in Spark's notation."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm = _jvm(spark)
        context: Any = spark.sparkContext._jsc
        self._jvm = jvm
        place = jvm.org.apache.hadoop.fs.Path(path)
        self._files = place.getFileSystem(context.hadoopConfiguration())
        self._path = self._files.makeQualified(place)
        self.path = str(self._path.toString())
        """The path with scheme and host."""

    @property
    def local(self) -> Path | None:
        """The directory on this machine, None if it is elsewhere."""
        uri = self._path.toUri()
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    @property
    def whole(self) -> str:
        """The path without links on the way, without a slash at the end."""
        return (self.path if self.local is None else str(self.local.resolve())).rstrip("/")

    def names(self) -> list[str]:
        """The names in it, sorted; empty if it does not exist."""
        if not self._files.exists(self._path):
            return []
        return sorted(
            str(status.getPath().getName()) for status in self._files.listStatus(self._path)
        )

    def read(self, name: str) -> bytes:
        """Read all bytes of a (small) file."""
        if self.local is not None:
            return (self.local / name).read_bytes()
        stream = self._files.open(self._child(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file, durably; readers see the old or the new content.

        On file systems that cannot rename over a file it is missing for a moment.
        """
        if self.local is not None:
            _write_here(self.local, name, data)
            return
        draft, path = self._child(f".{name}{DRAFT}"), self._child(name)
        stream = self._files.create(draft, True)
        try:
            stream.write(data)
            stream.hsync()
        finally:
            stream.close()
        if not self._renamed(draft, path):
            self._files.delete(path, False)
            if not self._renamed(draft, path):
                raise AerobeeError(f"{self.path}/{name} cannot be written")

    def _renamed(self, draft: Any, path: Any) -> bool:
        """Rename the draft; whether it worked. If a file is there HDFS says no, S3A raises."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types

        try:
            return bool(self._files.rename(draft, path))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
                return False
            raise

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its content; does nothing if it does not exist."""
        self._files.delete(self._child(name), True)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)


@contextmanager
def alone(spark: SparkSession, path: Path, who: str) -> Iterator[None]:
    """Hold a lock file of this machine while the body runs.

    The JVM of the driver holds it: when the lock is free, the JVM of a driver whose Python process
    was killed has stopped writing, too. Raises: AlreadyRunningError, if another process has it.
    """
    jvm = _jvm(spark)
    file = jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        if _try_lock(file) is None:
            raise AlreadyRunningError(f"{who} is running already (it holds {path}): try later")
        yield
    finally:
        file.close()


def _try_lock(file: Any) -> Any:
    """Take the lock, None if another process or another thread of this JVM has it."""
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "OverlappingFileLockException":
            return None
        raise


def _write_here(folder: Path, name: str, data: bytes) -> None:
    """Create or replace a file of this machine, durably. Raises: OSError.

    Not through Hadoop: its local files are never synced, and their checksums are in a second file,
    which does not match the content after a kill between two renames.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{name}{DRAFT}"
    draft.write_bytes(data)
    sync(draft)
    (folder / f".{name}.crc").unlink(missing_ok=True)
    draft.replace(folder / name)
    for changed in (folder, folder.parent):
        sync(changed)


def sync_tree(root: Path) -> None:
    """Sync a directory and everything below it to the disk. Raises: OSError."""
    for folder, _, names in os.walk(root):
        for name in (*names, ""):
            sync(os.path.join(folder, name))


def sync(path: str | Path) -> None:
    """Sync a file, or the names in a directory, to the disk. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
