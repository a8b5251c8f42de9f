"""Directories where Spark keeps tables, for the few small files that jobs lay beside the rows.

Names and bytes flow in and out, on whatever file system Spark reaches by a path: local, HDFS, an
object store. A file appears whole or not at all where the file system can rename.

Through Hadoop's API and not through pyarrow.fs, which `stateLocation` uses: these files belong to
tables that Spark writes with the file systems, end points and credentials of its configuration.
pyarrow knows none of these: it opens no `s3a:`, and `hdfs:` only where libhdfs is installed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["AlreadyRunningError", "Place", "alone", "sync", "sync_tree"]

DRAFT = ".draft"


class AlreadyRunningError(AerobeeError):
    """Another run of the same job is under way; trying again helps when it is over."""

    retryable = True


def _jvm(spark: SparkSession) -> Any:
    """The JVM of a session's driver."""
    gateway: Any = spark.sparkContext._gateway
    return gateway.jvm


class Place:
    """One directory, by a path as Spark takes it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm = _jvm(spark)
        context: Any = spark.sparkContext._jsc
        self._jvm = jvm
        given = jvm.org.apache.hadoop.fs.Path(path)
        self._files = given.getFileSystem(context.hadoopConfiguration())
        self._path = self._files.makeQualified(given)
        self.path = str(self._path.toString())
        """With scheme and host."""

    @property
    def local(self) -> Path | None:
        """The directory on this machine, None elsewhere."""
        uri = self._path.toUri()
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    def names(self) -> list[str]:
        """The names in it, sorted; none when it is not there."""
        if not self._files.exists(self._path):
            return []
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(self._path))

    def read(self, name: str) -> bytes:
        """All bytes of a (small) file."""
        if self.local is not None:
            return (self.local / name).read_bytes()
        stream = self._files.open(self._child(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file, durably; readers find the old or the new content.

        Where the file system cannot rename over a file there is none for a moment.
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
        """Whether it has its name; where a file has it already HDFS says no, and S3A raises."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types

        try:
            return bool(self._files.rename(draft, path))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
                return False
            raise

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all in it; nothing when it is not there."""
        self._files.delete(self._child(name), True)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)


@contextmanager
def alone(spark: SparkSession, path: Path, who: str) -> Iterator[None]:
    """Hold a lock file of this machine while the body runs.

    The JVM of the driver holds it: what it still writes after its Python process was killed is
    over when the lock is free. Raises: AlreadyRunningError, when somebody else has it.
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
    """The lock, None when another process or another thread of this JVM has it."""
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "OverlappingFileLockException":
            return None
        raise


def _write_here(folder: Path, name: str, data: bytes) -> None:
    """Create or replace a file of this machine, durably. Raises: OSError.

    Not by Hadoop: its local files are never synced, and have checksums in a second file, which a
    kill between two renames leaves to the wrong content.
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
    """Have a directory and all below it on the disk. Raises: OSError."""
    for folder, _, names in os.walk(root):
        for name in (*names, ""):
            sync(os.path.join(folder, name))


def sync(path: str | Path) -> None:
    """Have a file, or the names in a directory, on the disk. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
