"""Answers how far slaves have the log: GET_BROKER_HA_STATUS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.statistics import HAConnectionInfo, HARuntimeInfo
from aerobee.store.replication.transfer import Standing

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers


class StatusProcessor:
    """Handles the code 907."""

    def __init__(self, core: Core) -> None:
        self._log_out = core.store.log_out
        self._gap_bytes = core.config.replication.ha_max_gap_not_in_sync_bytes

    def ha_status(
        self, header: headers.GetBrokerHaStatus, command: Command, connection: Peer
    ) -> Answer:
        """GET_BROKER_HA_STATUS: this is a master; a slave that does not follow is never in sync."""
        end = self._log_out.span().max_offset
        slaves = []
        for follower in self._log_out.followers:
            transfer = follower.transfer
            follows = transfer.standing is Standing.FOLLOWS
            acknowledged = transfer.acknowledged if follows else 0
            slaves.append(
                HAConnectionInfo(
                    addr=follower.peer,
                    slave_ack_offset=acknowledged,
                    diff=end - acknowledged,
                    in_sync=follows and end - acknowledged < self._gap_bytes,
                    transfer_from_where=max(0, transfer.next_offset),
                )
            )
        status = HARuntimeInfo(
            master_commit_log_max_offset=end,
            ha_connection_info=slaves,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
        )
        return Answer(body=status.to_bytes())
