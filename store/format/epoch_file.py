"""The file `epochFileCheckpoint` of a replica: its epochs, as Java writes them. Pure.

Lines of text: how many epochs, the CRC of what follows, then `epoch-start` for each.
Source: store format §8 (EpochFileCache, CheckpointFile).
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from aerobee.store.errors import FrameIllegal
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha_epochs import check_epochs

if TYPE_CHECKING:
    from collections.abc import Sequence

EPOCH_FILE_NAME: Final = "epochFileCheckpoint"
LINE: Final = re.compile(rb"(\d{1,10})-(\d{1,19})")
UNCHECKED: Final = 0
"""The CRC of a file that is not to be checked."""


class EpochFileIllegal(ValueError):
    """The file does not have what it says."""


def encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    """The content of the file."""
    rows = b"".join(b"%d-%d\n" % epoch for epoch in epochs)
    return b"%d\n%d\n" % (len(epochs), _crc(rows)) + rows


def decode_epochs(data: bytes) -> tuple[Epoch, ...]:
    """The epochs of a file. Raises: EpochFileIllegal saying what is wrong."""
    count, _, rest = data.partition(b"\n")
    crc, _, rows = rest.partition(b"\n")
    if not (count.isdigit() and crc.isdigit()) or len(count) > 10 or len(crc) > 10:
        raise EpochFileIllegal("it does not begin with two numbers")
    if int(crc) not in (UNCHECKED, _crc(rows)):
        raise EpochFileIllegal(f"its CRC is {_crc(rows)}, and should be {int(crc)}")
    lines = rows.splitlines()
    if len(lines) != int(count):
        raise EpochFileIllegal(f"it has {len(lines)} epochs, and says {int(count)}")
    epochs = []
    for line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            raise EpochFileIllegal(f"{line[:50]!r} is no epoch")
        epochs.append(Epoch(int(match[1]), int(match[2])))
    try:
        check_epochs(epochs)
    except FrameIllegal as error:
        raise EpochFileIllegal(str(error)) from error
    return tuple(epochs)


def _crc(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFF_FFFF
