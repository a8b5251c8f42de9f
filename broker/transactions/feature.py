"""Transactions: open halves, their end, and the check of producers that do not send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.core.feature import Feature
from aerobee.broker.saved.save import Periodic
from aerobee.broker.transactions.check_service import HalfMessages
from aerobee.broker.transactions.end_transaction import TransactionProcessor
from aerobee.broker.transactions.open_transactions import Transactions
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import transaction as headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable

COUNTS_S: Final = 10.0
"""Seconds between saves of counts that only another broker reads."""


class TransactionsFeature(Feature):
    """The table of open halves, which is read from the log, and the check service."""

    def __init__(self, core: Core, topics: TopicTable, consumers: ConsumerTables) -> None:
        self.table = Transactions(known=not core.role.is_slave)
        self.half_messages = HalfMessages(
            core,
            topics=topics,
            clients=consumers.clients,
            offsets=consumers.offsets,
            transactions=self.table,
        )
        self.requests = TransactionProcessor(core, self.table)
        self.routes = (Route(headers.EndTransaction, self.requests.end, "transaction"),)
        self.periodic = (
            Periodic(core.tables.changing(self.table, "transactionMetrics"), COUNTS_S),
        )
        self.master_services = (self.half_messages,)

    def settings_changed(self) -> Iterator[None]:
        """Check as often as transactionCheckInterval says now."""
        self.half_messages.settings_changed()
        yield

    def copy_begins(self) -> None:
        """Know no half any more: another master ends them."""
        self.table.known = False

    async def close(self) -> None:
        """Save the progress in both queues."""
        await self.half_messages.save_progress()
