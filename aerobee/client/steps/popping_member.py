"""A POP consumer that is a member of its group: brokers assign the queues that it pops from.

In a group with few members, or without a configured number of members per queue, each member pops
from all queues of all brokers. Source: client §12, semantics §11.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aerobee.client.filters import ALL
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.steps.checking import described
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import Subscription
from aerobee.client.steps.popping import PAUSE_S, TURN_S, Popper
from aerobee.client.steps.rebalance import query_assignment
from aerobee.client.steps.sending_back import retry_topic
from aerobee.errors import AerobeeError, ConfigurationError, ConsumerNotOnlineError
from aerobee.remoting.wire.bodies.client import ConsumerData
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from aerobee.client.filters import Filter
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Outcome
    from aerobee.remoting.wire.command import Command

REBALANCE_S: Final = 20.0
"""How long an assignment is used before it is queried again."""
STRATEGY: Final = "AVG"
HOLD_S: Final = 5.0
"""The longest hold of a request, after which queues of a member that left are noticed."""


@dataclass(slots=True)
class TopicAssignment:
    """The assigned queues of one topic."""

    queues: list[MessageQueue]
    asked_again_at: float


@dataclass(slots=True)
class PoppingMember(Popper):
    """The state of one such consumer. It joins the group with its first subscription."""

    hold_max_s: float = HOLD_S
    rebalance_now: Signal = field(default_factory=Signal)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _assigned: dict[str, TopicAssignment] = field(default_factory=dict)

    def close(self, within_s: float) -> Steps[None]:
        """Leave the group, too, so that its queues are assigned to other members."""
        yield from Popper.close(self, within_s)
        if self.subscriptions:
            yield from self.instance.leave(consumer=self.group, within_s=within_s)

    def let_go(self) -> None:
        """Be in no further heartbeat, though the close was cut off."""
        self.instance.remove_consumer(self)

    # ── Interface for the instance ──

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.config.group

    def topics(self) -> set[str]:
        """The topics whose routes are needed."""
        return set(self.subscriptions) - {retry_topic(self.group)}

    def heartbeat(self) -> ConsumerData:
        """The group's data for heartbeats, as push consumers send it."""
        last = self.config.start_from is not ConsumeFrom.FIRST
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where=f"CONSUME_FROM_{'LAST' if last else 'FIRST'}_OFFSET",
            subscription_data_set=[
                described(subscription) for subscription in self.subscriptions.values()
            ],
            unit_mode=False,
        )

    def serve(self, request: Command) -> Outcome:
        """Handle a request of a broker for this group."""
        return ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    # ── Queues ──

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The last assigned queues of all topics."""
        return frozenset(
            queue for assignment in self._assigned.values() for queue in assignment.queues
        )

    def queues(self, topic: str, wanted: Filter) -> Steps[list[MessageQueue]]:
        """The assigned queues of a topic; empty while there are more members than queues.

        Raises: ConfigurationError where the group pulls the topic, RouteNotFoundError, BrokerError.
        """
        self._subscribe(topic, wanted)
        if self.rebalance_now.is_set:
            self.rebalance_now.clear()
            for assignment in self._assigned.values():
                assignment.asked_again_at = 0.0
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
            return [] if known is None else known.queues
        self.instance.works_again(about)
        # A member without queues may be assigned one soon.
        again_s = REBALANCE_S if queues else TURN_S
        self._assigned[topic] = TopicAssignment(queues, self.instance.clock.monotonic() + again_s)
        return queues

    def _subscribe(self, topic: str, wanted: Filter) -> None:
        """Send the subscription to brokers, with the group's retry topic as all members have it.

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
