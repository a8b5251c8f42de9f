"""The epochs of this log on disk: read at the start, replaced whole with each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.epoch_file import (
    EPOCH_FILE_NAME,
    EpochFileIllegal,
    decode_epochs,
    encode_epochs,
)
from aerobee.store.format.epochs import shortened
from aerobee.store.format.ha_epochs import EPOCHS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.format.epochs import Epoch


def read_epochs(disk: Disk, root: Path) -> tuple[Epoch, ...]:
    """The epochs of a data directory, shortened as those that are saved; none without a file.

    Java passes a damaged file over for the one before it. That may lack an epoch whose bytes are in
    the log: they would count as an earlier master's, and stay where a cut must take them. Raises:
    EpochFileIllegal naming the file, OSError.
    """
    path = root / EPOCH_FILE_NAME
    if not disk.exists(path):
        return ()
    try:
        return shortened(decode_epochs(disk.read(path)), EPOCHS_MAX)
    except EpochFileIllegal as error:
        raise EpochFileIllegal(f"{path}: {error}") from error


def write_epochs(disk: Disk, root: Path, epochs: Sequence[Epoch]) -> None:
    """Save them, durably: a crash leaves the old ones or these. For a thread. Raises: OSError."""
    disk.write_atomically(root / EPOCH_FILE_NAME, encode_epochs(epochs), backup=False)
