"""ACL 1.0 of the broker: its accounts, and the task that reads them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.broker.access.acl_files import AclFiles
from aerobee.broker.access.plain_acl import PlainAcl
from aerobee.broker.core.feature import Feature

if TYPE_CHECKING:
    from aerobee.broker.access.acl_files import CutOff
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core


class AclFeature(Feature):
    """The files of accounts; `files` is None without `aclEnable`."""

    def __init__(self, core: Core) -> None:
        self.files = acl_files(core.config, core.rounds.reactor.cut_off)
        if self.files is not None:
            self.services = (self.files,)

    def load(self) -> None:
        """Read the accounts. Raises: ConfigurationError."""
        if self.files is not None:
            self.files.load()


def acl_files(config: BrokerConfig, cut_off: CutOff) -> AclFiles | None:
    """The accounts of a broker or name server; None without `aclEnable`.

    Every account that has any right may send traces and the replies of request-reply.
    """
    if not config.auth.acl_enable:
        return None
    broker = config.broker
    replies = f"{broker.broker_cluster_name}_REPLY_TOPIC"
    acl = PlainAcl((broker.msg_trace_topic_name, replies))
    return AclFiles(Path(config.auth.acl_config_dir).expanduser(), acl, cut_off)
