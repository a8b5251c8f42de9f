"""Deduplication: a message that was sent twice is stored once, in topics with such a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.settings.dedupe import parse
from aerobee.broker.core.feature import Feature
from aerobee.broker.dedupe.dedupe import Dedupe

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core


class DedupeFeature(Feature):
    """The windows of sent messages, which `Send` asks before it stores one."""

    def __init__(self, core: Core) -> None:
        broker = core.config.broker
        self.dedupe = Dedupe(
            parse(broker.dedupe),
            max_entries=broker.dedupe_max_entries,
            store=core.store,
            clock=core.clock,
            repeated=core.stats.repeated,
        )
        self.master_services = (self.dedupe,)

    def copy_begins(self) -> None:
        """Read the windows again as the next master: others put messages until then."""
        self.dedupe.forget()
