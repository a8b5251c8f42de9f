"""Answers how far slaves have the log, where the master is, and which epochs the log has.

The codes 906 to 908, and of RocketMQ's controller mode 1007 and 1008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.core.role import MASTER_ID
from aerobee.broker.errors import Refusal
from aerobee.broker.replication.following import State
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.controller import EpochEntry, EpochEntryCache
from aerobee.remoting.wire.bodies.statistics import (
    HAClientRuntimeInfo,
    HAConnectionInfo,
    HARuntimeInfo,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import admin as headers
from aerobee.store.format.epochs import end_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.slaves_view import SlavesView
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.bodies.statistics import GroupRecord
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.controller import (
        GetBrokerEpochCache,
        NotifyBrokerRoleChanged,
    )

NO_END: Final = (1 << 63) - 1
"""The end of the last epoch, as Java writes it."""


def ha_address(config: BrokerConfig) -> str:
    """Where slaves find the log, as it is published; the port beside listenPort unless set."""
    listen_port = config.remoting.listen_port
    beside = listen_port + 1 if listen_port < 65_535 else 0
    return with_port(config.broker.broker_ip2, config.replication.ha_listen_port or beside)


class StatusProcessor:
    """Handles the codes 906 to 908, 1007 and 1008."""

    def __init__(self, core: Core, slaves: SlavesView) -> None:
        self._config = core.config
        self._address = core.address
        self._id = core.config.broker.broker_id
        self._slaves = slaves
        self._store, self._role, self._clock = core.store, core.role, core.clock
        self._now = slaves.now
        self.following: Following | None = None
        """Of a slave: what follows its master."""
        self.tables_trouble: Callable[[], str | None] = _no_trouble
        """Of a slave: why it has old tables of a master that it follows."""
        self.record: Callable[[], GroupRecord | None] = _no_record
        """Of a member of a group: what the decider has."""
        self.role_changed: Callable[[NotifyBrokerRoleChanged], None] = _no_role
        """Of a member of a group with RocketMQ's controller: that tells of an election."""
        self.start_offset = 0
        """The end of the log at the start of this broker."""

    def ha_status(
        self, header: headers.GetBrokerHaStatus, command: Command, connection: Peer
    ) -> Answer:
        """GET_BROKER_HA_STATUS: the slaves of a master, or how a slave stands to its master.

        A slave that does not follow is never in sync.
        """
        if self._role.is_slave:
            return Answer(body=self._of_slave().to_bytes())
        slaves = list(self._slaves.figures())
        status = HARuntimeInfo(
            master_commit_log_max_offset=self._slaves.end,
            ha_connection_info=[
                HAConnectionInfo(
                    addr=slave.peer,
                    slave_ack_offset=slave.acknowledged,
                    diff=slave.lag_bytes,
                    in_sync=slave.in_sync,
                    transfer_from_where=slave.next_offset,
                    lag_millis=round(slave.lag_s * 1000),
                    standing=slave.standing,
                )
                for slave in slaves
            ],
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            epoch=self._role.epoch,
            broker_id=self._role.number,
            ha_address=ha_address(self._config),
            record=self.record(),
        )
        return Answer(body=status.to_bytes())

    def _of_slave(self) -> HARuntimeInfo:
        """As Java: nothing of the slaves that it may have itself."""
        following, log_in = self.following, self._store.log_in
        client = HAClientRuntimeInfo(max_offset=self._store.commit_log.max_offset)
        if following is not None:
            address = following.address
            client.state = str(following.state)
            client.problem = following.problem or self.tables_trouble() or ""
            client.activated = following.state is State.FOLLOWING
            client.master_addr = "" if address is None else address.ha_address
            client.master_flush_offset = log_in.master_offset
            if log_in.heard_at > 0:
                silent_s = self._now() - log_in.heard_at
                client.last_read_timestamp = self._clock.now_ms() - round(silent_s * 1000)
        return HARuntimeInfo(
            master=False,
            master_commit_log_max_offset=0,
            ha_client_runtime_info=client,
            epoch=self._role.epoch,
            broker_id=self._role.number,
            ha_address=ha_address(self._config),
            shadow=self._config.replication.shadow,
            record=self.record(),
        )

    def exchange(
        self, header: headers.ExchangeBrokerHaInfo, command: Command, connection: Peer
    ) -> Answer:
        """EXCHANGE_BROKER_HA_INFO: where this master is.

        The part that a slave would be told is left out: it finds its master by settings and at name
        servers. In a group the master sends its log to slaves before it serves clients.

        Source: administration §4.5.
        """
        membership = self._store.log_in.membership
        leads = membership is not None and membership.group.leads
        if header.master_ha_address is not None or (self._role.is_slave and not leads):
            return Answer()
        return Answer(
            header=headers.ExchangeBrokerHaInfoResponse(
                master_address=self._address,
                master_flush_offset=self.start_offset,
                master_ha_address=ha_address(self._config),
            )
        )

    def epochs(self, header: GetBrokerEpochCache, command: Command, connection: Peer) -> Answer:
        """GET_BROKER_EPOCH_CACHE: which master wrote which part of the log, of any group's member.

        Raises: Refusal.
        """
        membership, config = self._store.log_in.membership, self._config.broker
        if membership is None:
            # The blank is Java's.
            raise Refusal(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
        epochs = membership.group.epochs
        body = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=self._id if self._role.is_slave else MASTER_ID,
            epoch_list=[
                EpochEntry(
                    epoch=epoch.epoch,
                    start_offset=epoch.start,
                    end_offset=end_of(epochs, number, NO_END),
                )
                for number, epoch in enumerate(epochs)
            ],
            max_offset=self._store.commit_log.max_offset,
        )
        return Answer(body=body.to_bytes())

    def notified(
        self, header: NotifyBrokerRoleChanged, command: Command, connection: Peer
    ) -> Answer:
        """NOTIFY_BROKER_ROLE_CHANGED: a controller has elected a master.

        It is a reason to ask the controllers, and changes nothing by itself. As in Java the answer
        is the same where there is no controller.
        """
        self.role_changed(header)
        return Answer()

    def reset_flush_offset(
        self, header: headers.ResetMasterFlushOffset, command: Command, connection: Peer
    ) -> Answer:
        """RESET_MASTER_FLUSH_OFFSET: a master has nothing to reset, and says yes as Java's does."""
        return Answer()


def _no_trouble() -> str | None:
    """Of a broker that copies no tables."""
    return None


def _no_record() -> GroupRecord | None:
    """Of a broker whose master is named by people."""
    return None


def _no_role(header: NotifyBrokerRoleChanged) -> None:
    """Of a broker without a controller."""
