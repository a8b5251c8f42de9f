"""A POP consumer that is a member of its group: brokers say which queues it pops from.

Members pop what they were given; a group with few members, or that no number of sharers was set
for, has each pop from all queues of all brokers. Source: client §12, semantics §11.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aerobee.client.config import ConsumeFrom
from aerobee.client.filters import ALL
from aerobee.client.steps.assignment import query_assignment
from aerobee.client.steps.checking import described
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import Subscription
from aerobee.client.steps.popping import PAUSE_S, TURN_S, Popper
from aerobee.client.steps.sending_back import retry_topic
from aerobee.errors import AerobeeError, ConfigurationError, ConsumerNotOnlineError
from aerobee.remoting.wire.bodies.heartbeat import ConsumerData
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from aerobee.client.filters import Filter
    from aerobee.client.message import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Outcome
    from aerobee.remoting.wire.command import Command

__all__ = ["PoppingMember"]

REBALANCE_S: Final = 20.0
"""How long an assignment counts without a word of a broker."""
STRATEGY: Final = "AVG"
HOLD_S: Final = 5.0
"""How long others' queues may lie when their member left while a broker held our request."""


@dataclass(slots=True)
class Assigned:
    """Queues of one topic."""

    queues: list[MessageQueue]
    asked_again_at: float


@dataclass(slots=True)
class PoppingMember(Popper):
    """The state of one such consumer. It joins the group with its first topic."""

    hold_max_s: float = HOLD_S
    rebalance_now: Signal = field(default_factory=Signal)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _assigned: dict[str, Assigned] = field(default_factory=dict)

    def close(self, within_s: float) -> Steps[None]:
        """Leave the group, too, so that the others are given our queues."""
        yield from Popper.close(self, within_s)
        if self.subscriptions:
            yield from self.instance.leave(consumer=self.group, within_s=within_s)

    # ── As the instance sees it ──

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.config.group

    def topics(self) -> set[str]:
        """Topics whose routes are needed."""
        return set(self.subscriptions) - {retry_topic(self.group)}

    def heartbeat(self) -> ConsumerData:
        """The group as brokers should see it: as its push consumers say it."""
        last = self.config.start_from is not ConsumeFrom.FIRST
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where=f"CONSUME_FROM_{'LAST' if last else 'FIRST'}_OFFSET",
            subscription_data_set=[described(one) for one in self.subscriptions.values()],
            unit_mode=False,
        )

    def serve(self, request: Command) -> Outcome:
        """React to a request of a broker for this group."""
        return ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    # ── Which queues ──

    def assignment(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that the broker gave us last."""
        known = self._assigned.get(topic)
        return [] if known is None else known.queues

    def queues(self, topic: str, wanted: Filter) -> Steps[list[MessageQueue]]:
        """What we were given of a topic; nothing while there are more members than queues.

        Raises: ConfigurationError where the group pulls the topic, RouteNotFoundError, BrokerError.
        """
        self._subscribe(topic, wanted)
        if self.rebalance_now.is_set:
            self.rebalance_now.clear()
            for one in self._assigned.values():
                one.asked_again_at = 0.0
        known = self._assigned.get(topic)
        if known is not None and self.instance.clock.monotonic() < known.asked_again_at:
            return known.queues
        about = f"assignment {topic}"
        try:
            queues = yield from self._given(topic)
        except AerobeeError as error:
            if not (error.retryable or isinstance(error, ConsumerNotOnlineError)):
                raise
            self.instance.log_once(about, "assignment of %s for %s: %s", topic, self.group, error)
            yield Wait(self.closing, PAUSE_S)
            return self.assignment(topic)
        self.instance.works_again(about)
        # Who has none may soon be given one.
        again_s = REBALANCE_S if queues else TURN_S
        self._assigned[topic] = Assigned(queues, self.instance.clock.monotonic() + again_s)
        return queues

    def _subscribe(self, topic: str, wanted: Filter) -> None:
        """Have brokers know what we pop, the group's retry topic as all members say it.

        Raises: ConfigurationError for a second consumer of the group.
        """
        known = self.subscriptions.get(topic)
        if known is not None and known.filter == wanted:
            return
        version = self.instance.clock.wall_ms()
        if not self.subscriptions:
            self.instance.add_consumer(self)
            retries = retry_topic(self.group)
            self.subscriptions[retries] = Subscription(retries, ALL, version)
        self.subscriptions[topic] = Subscription(topic, wanted, version)
        self.instance.subscriptions_changed()

    def _given(self, topic: str) -> Steps[list[MessageQueue]]:
        route = yield from self.instance.route(topic, self.instance.config.request_timeout)
        yield from self.instance.introduce(route)
        assigned = yield from query_assignment(self.instance, self.group, topic, route, STRATEGY)
        if not all(assigned.values()):
            raise ConfigurationError(
                f"group {self.group} pulls topic {topic}: set it to POP (`mqadmin setConsumeMode "
                f"-t {topic} -g {self.group} -m POP`), or leave server_assignment out"
            )
        return sorted(assigned)
