"""The role that a command gave a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.replication.saved_role import (
    SavedRole,
    in_saved_role,
    path_of,
    read_role,
    write_role,
)
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from tests.broker.desk import broker_config

if TYPE_CHECKING:
    from pathlib import Path

SLAVE = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}
MASTER = SavedRole(broker_role="ASYNC_MASTER", epoch=3, offset=700)


def test_a_slave_that_was_made_the_master_starts_as_one(tmp_path: Path) -> None:
    disk, config = Disk(), broker_config(tmp_path, **SLAVE)
    assert in_saved_role(config, disk) is config
    write_role(disk, tmp_path, MASTER)
    assert read_role(disk, tmp_path) == MASTER
    started = in_saved_role(config, disk)
    assert (started.broker.broker_role, started.broker.broker_id) == (BrokerRole.ASYNC_MASTER, 0)
    assert not started.is_slave
    assert started.store == config.store


def test_a_slave_with_copies_to_wait_for_waits_once_it_is_the_master(tmp_path: Path) -> None:
    disk = Disk()
    replication = ReplicationConfig(in_sync_replicas=2, ha_peers="127.0.0.1")
    config = broker_config(tmp_path, **SLAVE, replication=replication)
    # While it runs, and after its next start.
    assert (config.needed_slaves, config.answers_wait) == (1, True)
    write_role(disk, tmp_path, MASTER)
    started = in_saved_role(config, disk)
    assert started.broker.broker_role is BrokerRole.SYNC_MASTER
    assert (started.needed_slaves, started.answers_wait) == (1, True)


def test_settings_of_a_master_need_no_saved_role(tmp_path: Path) -> None:
    disk = Disk()
    config = broker_config(tmp_path, broker_role=BrokerRole.SYNC_MASTER)
    write_role(disk, tmp_path, MASTER)
    assert in_saved_role(config, disk) is config


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"brokerRole": "ASYNC_MASTER"}'])
def test_a_role_that_cannot_be_read_refuses_the_start(tmp_path: Path, content: bytes) -> None:
    """Neither role may be guessed: one makes two masters, the other none."""
    path = path_of(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreRefused, match="does not decode"):
        in_saved_role(broker_config(tmp_path, **SLAVE), Disk())
