"""The number of the member whose data directory this is, beside its log.

The sync set counts members by their numbers. A directory that changed its number would count as one
that has every acknowledged message, and its log may lack them. A controller has a file for that
itself, and gives the numbers out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.errors import StoreRefused
from aerobee.store.format.names import MEMBER

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk


def refuse_other_number(disk: Disk, root: Path, number: int) -> None:
    """Refuse the directory of another member; nothing is changed.

    Raises: StoreRefused with what to do, OSError.
    """
    path = root / MEMBER
    if not disk.exists(path):
        return
    written = disk.read(path).decode("ascii", "replace").strip()
    if written != str(number):
        raise StoreRefused(
            f"{path} says that this directory is of member {written[:20]} of its group, and"
            f" brokerId is {number}: the sync set counts members by that number, and would take"
            f" this log for another one's. Set brokerId to {written[:20]}, or keep the directory"
            " aside and begin with an empty one"
        )


def save_number(disk: Disk, root: Path, number: int) -> None:
    """Write the number down, durably, where it is not yet. Raises: OSError."""
    if not disk.exists(root / MEMBER):
        disk.write_atomically(root / MEMBER, f"{number}\n".encode(), backup=False)
