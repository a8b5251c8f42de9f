"""A group member that handles the requests of administrators, forwarded by brokers.

    RESET_CONSUMER_CLIENT_OFFSET → the queues in it continue at the given offsets
    GET_CONSUMER_STATUS_FROM_CLIENT, GET_CONSUMER_RUNNING_INFO → its queues and rates

Source: client §4, §9.8, §13.4 (ClientRemotingProcessor).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

from aerobee.client.stacks import stacks
from aerobee.client.steps.checking import described
from aerobee.client.steps.consuming import Member
from aerobee.client.steps.effects import Wait
from aerobee.client.wire_queues import from_wire, to_wire
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.queue_tables import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ProcessQueueInfo,
    ResetOffsets,
    queue_of,
)
from aerobee.remoting.wire.codes import VERSION, RequestCode
from aerobee.remoting.wire.headers.admin import (
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from aerobee.remoting.wire.version import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.instance import Outcome
    from aerobee.remoting.wire.command import Command

BUSY_CHECK_S = 0.05
"""How often a reset checks whether the running orderly handler of a queue has finished."""


@dataclass(slots=True)
class AskedMember(Member):
    """The state of one consumer, and its responses to brokers."""

    def serve(self, request: Command) -> Outcome:
        """Handle a request of a broker for this group. Raises: HeaderError, BodyError."""
        match request.code:
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                table = ResetOffsets.from_bytes(request.body).offset_table
                return self.reset({from_wire(queue_of(key)): at for key, at in table.items()})
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                topic = request.header(GetConsumerStatusFromClient).topic
                return Answer(body=self.status(topic).to_bytes())
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                wanted = request.header(GetConsumerRunningInfo)
                info = self.running_info(with_stacks=bool(wanted.jstack_enable))
                return Answer(body=info.to_bytes())
        return Member.serve(self, request)

    # ── Resets ──

    def reset(self, offsets: Mapping[MessageQueue, int]) -> Steps[None]:
        """Continue at these offsets in each held queue; results of running handlers are ignored."""
        for queue, offset in offsets.items():
            held = self.held.get(queue)
            if held is not None:
                held.drop()
                while held.busy and not self.closing.is_set:
                    yield Wait(self.closing, BUSY_CHECK_S)
                # Another member may hold the queue now, and use the committed offset.
                if self.held.get(queue) is held:
                    anew = self.hold(queue, offset)
                    anew.locked_at = held.locked_at
            try:
                yield from self._commit_one(queue, offset)
            except AerobeeError as error:
                self.instance.log_once(f"commit {queue}", "%s not committed: %s", queue, error)

    # ── Running info ──

    def status(self, topic: str) -> ConsumerStatus:
        """The progress in the queues of a topic."""
        return ConsumerStatus(
            message_queue_table={
                to_wire(queue).to_bytes().decode(): held.commit_point
                for queue, held in self.held.items()
                if queue.topic == topic
            }
        )

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """The running info: options, subscriptions, queues and rates."""
        now = self.instance.clock.monotonic()
        return ConsumerRunningInfo(
            properties=self.properties(),
            subscription_set=[described(one) for one in self.subscriptions.values()],
            mq_table={
                to_wire(queue).to_bytes().decode(): self._account(held, now)
                for queue, held in self.held.items()
            },
            status_table={
                topic: self.figures.status(topic, now) for topic in sorted(self.subscriptions)
            },
            jstack=stacks() if with_stacks else None,
        )

    def properties(self) -> dict[str, str]:
        """The consumer's options, and the properties that tools expect."""
        client = self.instance.config
        options = {one.name: getattr(self.config, one.name) for one in fields(self.config)}
        plain = {
            name: str(value.value if isinstance(value, Enum) else value)
            for name, value in options.items()
            if isinstance(value, (str, int, float, Enum))
        }
        return plain | {
            "PROP_NAMESERVER_ADDR": ";".join(client.name_servers),
            "PROP_CLIENT_VERSION": describe(VERSION),
            "PROP_CONSUME_TYPE": self.heartbeat().consume_type,
            "PROP_CONSUMEORDERLY": str(options.get("orderly", False)).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(options.get("concurrency", 0)),
            "PROP_CONSUMER_START_TIMESTAMP": str(self.wall_ms(self.figures.began)),
        }

    def _account(self, held: HeldQueue, now: float) -> ProcessQueueInfo:
        waiting = held.waiting
        offsets = [*held.unfinished, *(one.queue_offset for one in waiting)]
        return ProcessQueueInfo(
            commit_offset=held.commit_point,
            cached_msg_min_offset=min(offsets, default=0),
            cached_msg_max_offset=max(offsets, default=0),
            cached_msg_count=len(offsets),
            cached_msg_size_in_mi_b=sum(len(one.body) for one in waiting) >> 20,
            locked=held.locked_at > 0,
            last_lock_timestamp=self.wall_ms(held.locked_at),
            last_pull_timestamp=self.wall_ms(held.pulled_at),
            last_consume_timestamp=self.wall_ms(held.consumed_at),
        )

    def wall_ms(self, at: float) -> int:
        """A monotonic instant as wall-clock ms; 0 stays "never"."""
        clock = self.instance.clock
        return clock.wall_ms() - int(1000 * (clock.monotonic() - at)) if at else 0
