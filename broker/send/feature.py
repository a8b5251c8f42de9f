"""Sending: messages of producers, replies to them, and messages that consumers send back."""

from __future__ import annotations

import random
from os import getpid
from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.errors import TopicTooFast
from aerobee.broker.send.answers import SendAnswers
from aerobee.broker.send.batches import Batches
from aerobee.broker.send.dead_letters import DeadLetters
from aerobee.broker.send.destinations import Destinations
from aerobee.broker.send.reply import ReplyProcessor
from aerobee.broker.send.send import Send
from aerobee.broker.send.send_back import SendBack
from aerobee.broker.send.special_sends import SpecialSends
from aerobee.broker.send.uniq_ids import UniqIds
from aerobee.broker.topics.rates import Rates
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import send as headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.dedupe.feature import DedupeFeature
    from aerobee.broker.topics.feature import TopicsFeature
    from aerobee.broker.transactions.open_transactions import Transactions


class SendFeature(Feature):
    """The requests that store messages."""

    def __init__(
        self,
        core: Core,
        topics: TopicsFeature,
        consumers: ConsumerTables,
        transactions: Transactions,
        *,
        dedupe: DedupeFeature | None,
    ) -> None:
        self.destinations = Destinations(
            core.config.broker,
            topics=topics.table,
            groups=consumers.groups,
            clock=core.clock,
            random_queue=random.randrange,
        )
        dead_letters = DeadLetters(
            topics=topics.table,
            groups=consumers.groups,
            locks=consumers.locks,
            stats=core.stats,
            clock=core.clock,
        )
        once = None if dedupe is None else dedupe.dedupe
        self._rates = Rates(core.clock, core.stats.topics_too_fast, TopicTooFast)
        answers = SendAnswers(core, topics.file)
        send = self._send = Send(
            core,
            destinations=self.destinations,
            topic_file=topics.file,
            new_unique_key=UniqIds(
                core.store_host[:-4], getpid(), random.getrandbits(32), core.clock
            ),
            answers=answers,
            specials=SpecialSends(
                core,
                answers,
                transactions=transactions,
                dead_letters=dead_letters,
                dedupe=once,
                rates=self._rates,
            ),
            batches=Batches(core, answers, once, self._rates),
        )
        back = SendBack(
            core,
            dead_letters=dead_letters,
            topics=topics.table,
            groups=consumers.groups,
            random_queue=random.randrange,
        )
        reply = ReplyProcessor(core, destinations=self.destinations, clients=consumers.clients)
        self.routes = (
            Route(headers.SendMessage, send.one, "send", send.run),
            Route(headers.SendMessageV2, send.one, "send", send.run),
            Route(headers.SendBatchMessage, send.batch, "send"),
            Route(headers.ConsumerSendMsgBack, back.take_back, "send"),
            Route(headers.SendReplyMessage, reply.reply, "reply"),
            Route(headers.SendReplyMessageV2, reply.reply, "reply"),
        )

    def settings_changed(self) -> Iterator[None]:
        """Say traceOn as it is now."""
        self._send.settings_changed()
        yield

    def topic_deleted(self, topic: str) -> None:
        """Forget how much was sent to it."""
        self._rates.forget(topic)
