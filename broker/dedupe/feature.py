"""Deduplication: a message that was sent twice is stored once, in topics with such a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.dedupe.dedupe import Dedupe
from aerobee.broker.dedupe.dedupe_settings import parse
from aerobee.broker.dedupe.deduping_send import DedupingSend

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.send.send import Send

__all__ = ["DedupeFeature"]


class DedupeFeature(Feature):
    """The windows of sent messages, and the send that checks them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        broker = core.config.broker
        self.dedupe = Dedupe(
            parse(broker.dedupe),
            max_entries=broker.dedupe_max_entries,
            store=core.store,
            clock=core.clock,
            repeated=core.stats.repeated,
        )
        self.services = (self.dedupe,)

    def in_front_of(self, send: Send) -> Send | DedupingSend:
        """The processor for requests of producers; `send` itself where no topic has a rule."""
        if not self.dedupe.topics:
            return send
        core = self._core
        return DedupingSend(send, self.dedupe, config=core.config, store=core.store, puts=core.puts)
