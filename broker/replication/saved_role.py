"""The role that a command gave this broker, in `config/role.json`: it holds over restarts.

The file also has the epoch of the latest master that this broker was or has followed. A role that
a command gave counts whatever the settings say, until the file is removed. A SLAVE without a number
came from the settings, which may change.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.store.errors import StoreRefused

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.disk import Disk

MASTER_ID = 0

log = structlog.stdlib.get_logger(__name__)


class SavedRole(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """The content of the file."""

    broker_role: str
    """ASYNC_MASTER: this broker was made the master. SLAVE with a number: it has handed its role
    over. Else it is what the settings say."""
    epoch: int
    """How often the master of this log has changed by a command, as far as this broker knows."""
    offset: int
    """The end of the log at that moment: what is behind it was put here."""
    broker_id: int = 0
    """The number of a slave by command."""
    master_address: str = ""
    """The listenPort of the master of such a slave, as `host:port`: where no name server knows."""
    ha_address: str = ""
    """Its haListenPort."""


def path_of(root: Path) -> Path:
    """The file of a data directory."""
    return root / "config" / "role.json"


def read_role(disk: Disk, root: Path) -> SavedRole | None:
    """The saved role; None without one. Raises: StoreRefused for an unreadable file, OSError."""
    path = path_of(root)
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=SavedRole)
    except msgspec.DecodeError as error:
        raise StoreRefused(
            f"{path} says whether this broker is a master, and does not decode ({error}): move it"
            " away if another broker is the master of this group"
        ) from error


def write_role(disk: Disk, root: Path, role: SavedRole) -> None:
    """Save a role, durably. For a thread. Raises: OSError."""
    path = path_of(root)
    disk.mkdir(path.parent)
    disk.write_atomically(path, msgspec.json.encode(role), backup=False)


def undo_role(disk: Disk, root: Path, old: SavedRole | None) -> None:
    """Take back a role whose saving failed half-way: its name may be there. For a thread.

    Raises: OSError.
    """
    if old is not None:
        write_role(disk, root, old)
        return
    path = path_of(root)
    if disk.exists(path.parent):
        disk.remove_durably(path)


def in_saved_role(config: BrokerConfig, disk: Disk) -> BrokerConfig:
    """The settings with the role that a command gave. Raises: StoreRefused, OSError."""
    root = Path(config.store.store_path_root_dir)
    saved = read_role(disk, root)
    if saved is None:
        return config
    if config.is_slave:
        counts = saved.broker_role == BrokerRole.ASYNC_MASTER
        role, number = BrokerRole.ASYNC_MASTER, MASTER_ID
        if config.needed_slaves:
            role = BrokerRole.SYNC_MASTER
    else:
        handed_over = saved.broker_role == BrokerRole.SLAVE and saved.broker_id > 0
        counts = handed_over and not config.replication.force_old_master
        role, number = BrokerRole.SLAVE, saved.broker_id
    if not counts:
        return config
    log.warning(
        "replication.role_saved",
        path=str(path_of(root)),
        role=str(role),
        epoch=saved.epoch,
        offset=saved.offset,
    )
    broker = replace(config.broker, broker_role=role, broker_id=number)
    return replace(config, broker=broker)


def note_epoch(disk: Disk, root: Path, epoch: int, offset: int) -> None:
    """Save the epoch of a master that is followed from `offset` on; what else is known stays.

    For a thread. Raises: StoreRefused, OSError.
    """
    old = read_role(disk, root) or SavedRole(broker_role=BrokerRole.SLAVE, epoch=0, offset=0)
    new = msgspec.structs.replace(old, broker_role=BrokerRole.SLAVE, epoch=epoch, offset=offset)
    write_role(disk, root, new)
