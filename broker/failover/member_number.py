"""The number of the member whose data directory this is, beside its log.

The sync set counts members by their numbers. A directory that changed its number would count as one
that has every acknowledged message, and its log may lack them. The number holds while there is the
file of epochs: a log without epochs counts as emptied in any member's place, so nothing can be lost
by another number. A controller has a file for that itself, and gives the numbers out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.errors import StoreRefused
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.names import MEMBER

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

DIGITS_MAX: Final = 19
"""As many as a signed number of 64 bits has."""


def refuse_other_number(disk: Disk, root: Path, number: int) -> None:
    """Refuse the directory of another member; nothing is changed.

    Raises: StoreRefused with what to do, OSError.
    """
    path = root / MEMBER
    if not disk.exists(path) or not disk.exists(root / EPOCH_FILE_NAME):
        return
    written = _read(disk, path)
    if written is None:
        raise StoreRefused(
            f"{path} should have the number of the member whose log this is, and has none. Remove"
            f" that file if brokerId was {number} here before; else keep the directory aside and"
            " begin with an empty one"
        )
    if written != number:
        raise StoreRefused(
            f"{path} says that this directory is of member {written} of its group, and brokerId is"
            f" {number}: the sync set counts members by that number, and would take this log for"
            f" another one's. Set brokerId to {written}, or keep the directory aside and begin with"
            " an empty one"
        )


def save_number(disk: Disk, root: Path, number: int) -> None:
    """Write the number down, durably, before the log gets epochs; in the place of one that never
    counted. Raises: OSError.
    """
    path = root / MEMBER
    if not disk.exists(path) or _read(disk, path) != number:
        disk.write_atomically(path, f"{number}\n".encode(), backup=False)


def _read(disk: Disk, path: Path) -> int | None:
    data = disk.read(path).strip()
    return int(data) if data.isdigit() and len(data) <= DIGITS_MAX else None
