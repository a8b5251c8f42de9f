"""The epochs of this log on disk: read at the start, replaced whole with each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.epoch_file import (
    EPOCH_FILE_NAME,
    EpochFileIllegal,
    decode_epochs,
    encode_epochs,
)
from aerobee.store.format.names import backup_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.format.epochs import Epoch


def read_epochs(disk: Disk, root: Path) -> tuple[Epoch, ...]:
    """The epochs of a data directory; none without a file.

    A damaged file is passed over for the one before it, as Java does. Raises: EpochFileIllegal
    naming the file when neither is whole, OSError.
    """
    path = root / EPOCH_FILE_NAME
    problem = ""
    for place in (path, path.with_name(backup_name(path.name))):
        if not disk.exists(place):
            continue
        try:
            return decode_epochs(disk.read(place))
        except EpochFileIllegal as error:
            problem = problem or f"{place}: {error}"
    if problem:
        raise EpochFileIllegal(problem)
    return ()


def write_epochs(disk: Disk, root: Path, epochs: Sequence[Epoch]) -> None:
    """Save them, durably: a crash leaves the old ones or these. For a thread. Raises: OSError."""
    disk.write_atomically(root / EPOCH_FILE_NAME, encode_epochs(epochs))
