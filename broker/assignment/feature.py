"""Queue assignment by the broker: which consumer of a group has which queue, and whether it
pops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.assignment.assignment_processor import AssignmentProcessor
from aerobee.broker.assignment.request_modes import RequestModeTable
from aerobee.broker.core.feature import Feature
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import pop as headers

if TYPE_CHECKING:
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.namesrv.registration import Registration
    from aerobee.broker.topics.topics import TopicTable


class AssignmentFeature(Feature):
    """The table of request modes, and the requests about assignment."""

    def __init__(
        self,
        core: Core,
        topics: TopicTable,
        consumers: ConsumerTables,
        *,
        registration: Registration,
    ) -> None:
        """`registration`: with the name servers, which know the brokers of a topic."""
        self.modes = RequestModeTable(on_change=self._changed)
        self.file = core.tables.asked(self.modes, "messageRequestMode.json")
        self.saved = (self.file,)
        requests = AssignmentProcessor(
            core=core,
            topics=topics,
            groups=consumers.groups,
            clients=consumers.clients,
            registration=registration,
            modes=self.modes,
            saved=self.file,
        )
        self.routes = (
            Route(headers.QueryAssignment, requests.query, "load_balance"),
            Route(headers.SetMessageRequestMode, requests.set_mode, "load_balance"),
            Route(headers.GetAllMessageRequestMode, requests.all_modes, "admin"),
        )

    def _changed(self) -> None:
        self.file.request()

    def topic_deleted(self, topic: str) -> None:
        """Forget whether groups popped the topic."""
        self.modes.delete_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget what the group popped."""
        self.modes.delete_group(group)

    def load(self) -> None:
        """Load the modes."""
        self.file.load(self.modes.load)
