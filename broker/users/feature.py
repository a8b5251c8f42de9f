"""Users and policies of the broker: their tables, and the requests about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.saved.tables import Tables
from aerobee.broker.users.directory import UserDirectory
from aerobee.store.format.system_names import REPLY_SUFFIX

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core


class UsersFeature(Feature):
    """The users and their rights, for the broker and its name server."""

    def __init__(self, core: Core) -> None:
        tables, disk, cut_off = core.tables, None, core.rounds.reactor.cut_off
        if core.config.member:
            # The tables of the supervisor: an account is the same at all of its brokers.
            tables = Tables(core.store.root.parent / "config", core.disk, core.clock)
            disk = core.disk
        self.directory = UserDirectory(
            core.config.auth,
            tables,
            cut_off,
            shared=disk,
            open_topics=topics_open_to_accounts(core.config),
        )
        self.routes = self.directory.routes
        self.saved = self.directory.saved
        self.services = self.directory.services

    def load(self) -> None:
        """Read the tables, and the accounts of ACL 1.0. Raises: ConfigurationError."""
        self.directory.load()


def topics_open_to_accounts(config: BrokerConfig) -> tuple[str, str]:
    """The topics of traces and of the replies of request-reply: with ACL 1.0 every account that has
    any right may send there.
    """
    broker = config.broker
    return broker.msg_trace_topic_name, f"{broker.broker_cluster_name}{REPLY_SUFFIX}"
