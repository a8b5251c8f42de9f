"""Files that commands write: a file has its old content or all of the new one, where it can."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o600
"""The permission bits of files that may hold secrets."""
STDOUT, STDERR = 1, 2
NOT_REPLACED: Final = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS)
"""Errors of a new name where the file itself may be writable: its directory is for others or
read-only, or something is mounted on it.
"""


def write_file(path: Path, data: bytes, mode: int | None = None) -> None:
    """Create or replace a file: at any moment it has its old content, or all of the new one.

    `mode`: its permission bits; else those of the file that was there. A file that cannot be
    replaced with its owner and all its names is written in place. Raises: OSError with the path.
    """
    try:
        before = status_of(path)
        if before is None:
            _replace(path, data, mode, None)
        elif (number := standard_stream(before)) is not None:
            # A second opening would begin at the start of a file that others append to.
            with os.fdopen(os.dup(number), "wb") as file:
                file.write(data)
        else:
            _write_over(path, data, mode, before)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def status_of(path: Path) -> os.stat_result | None:
    """The status of what is there, behind links; None where nothing is. Raises: OSError."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def standard_stream(status: os.stat_result) -> int | None:
    """The descriptor of stdout or stderr where it is this file, as /dev/stdout is."""
    for number in (STDOUT, STDERR):
        # A process may have none.
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(number)):
                return number
    return None


def _write_over(path: Path, data: bytes, mode: int | None, before: os.stat_result) -> None:
    # A file that may not be written is not replaced, either.
    with os.fdopen(os.open(path, os.O_WRONLY), "wb") as file:
        if stat.S_ISREG(before.st_mode):
            system = os.path.abspath(path).startswith(("/dev/", "/proc/"))
            if not system and before.st_nlink == 1 and _replace(path, data, mode, before):
                return
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.truncate()
        file.write(data)


def _replace(path: Path, data: bytes, mode: int | None, before: os.stat_result | None) -> bool:
    """Give a new file the name. False: what was there is as before, and can only be written to."""
    place = Path(os.path.realpath(path))
    draft = place.with_name(f".aerobee-{os.urandom(8).hex()}.tmp")
    if mode is None and before is not None:
        mode = stat.S_IMODE(before.st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(draft, flags, 0o666 if mode is None else OWNER_ONLY), "wb") as file:
            made = os.fstat(file.fileno())
            if before and (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
                return False
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except OSError as error:
        if before is None or error.errno not in NOT_REPLACED:
            raise
        return False
    finally:
        # The draft has another name by now, or is not whole.
        with suppress(OSError):
            draft.unlink()
    return True
