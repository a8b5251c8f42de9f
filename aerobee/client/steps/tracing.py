"""Traces on their way: collected for some seconds, then messages of the trace topic.

Losing a trace is no error, and a trace is never traced. Source: client §15.2
(AsyncTraceDispatcher).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.client.config import RetryPolicy
from aerobee.client.message import Message
from aerobee.client.producer_config import ProducerConfig
from aerobee.client.steps.effects import Wait
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.traces import Traces
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.messages import UniqIds
    from aerobee.client.steps.traces import Trace

__all__ = ["CONSUME", "Tracing", "make_tracing", "traced"]

FLUSH_S = 5.0
"""How long a record waits for others."""
SEND_WITHIN_S = 5.0
MESSAGE_BYTES = 128_000
"""The length of one trace message at most, in characters."""
RECORDS_MAX = 20
"""Records in one trace message at most."""
GROUP = "_INNER_TRACE_PRODUCER-{group}-{kind}"
PRODUCE, CONSUME = "PRODUCE", "CONSUME"
CLOSE_WITHIN_S = 1.0
"""What a close waits for the last records."""
ONCE = RetryPolicy(attempts=2, patient=False)


@dataclass(slots=True)
class Tracing:
    """Sends what `traces` keeps."""

    traces: Traces
    sender: Sender

    def run(self) -> Steps[None]:
        """Send, time and again, until the client closes."""
        instance = self.sender.instance
        while not instance.closing.is_set:
            yield Wait(self.traces.wanted, FLUSH_S)
            self.traces.wanted.clear()
            yield from self.flush(instance.clock.monotonic() + SEND_WITHIN_S)

    def close(self) -> Steps[None]:
        """Send what is left, as far as a close has time for it."""
        yield from self.flush(self.sender.instance.clock.monotonic() + CLOSE_WITHIN_S)

    def flush(self, until_s: float) -> Steps[None]:
        """Send what waits, as far as the time allows."""
        instance = self.sender.instance
        while self.traces.waiting and instance.clock.monotonic() < until_s:
            taken = self._take()
            left_s = until_s - instance.clock.monotonic()
            message = Message(
                self.traces.topic,
                "".join(one.text for one in taken).encode(),
                keys=tuple(dict.fromkeys(key for one in taken for key in one.keys)),
            )
            try:
                yield from self.sender.send(message, None, left_s, require_ok=False)
            except AerobeeError as error:
                instance.log_once("trace", "a trace is lost: %s", error)
            else:
                instance.works_again("trace")

    def _take(self) -> list[Trace]:
        """The oldest records of one topic, as many as one message takes."""
        waiting = self.traces.waiting
        taken = [waiting.popleft()]
        size = len(taken[0].text)
        while waiting and len(taken) < RECORDS_MAX and waiting[0].topic == taken[0].topic:
            size += len(waiting[0].text)
            if size > MESSAGE_BYTES:
                break
            taken.append(waiting.popleft())
        return taken


def traced(sender: Sender) -> Tracing | None:
    """The trace of what a producer sends, if its options want one; it sees it from now on."""
    config = sender.config
    if not config.trace:
        return None
    tracing = make_tracing(
        sender.instance, sender.uniq_ids, config.group, PRODUCE, config.trace_topic
    )
    sender.traces = tracing.traces
    sender.hooks = (*sender.hooks, tracing.traces)
    return tracing


def make_tracing(
    instance: Instance, uniq_ids: UniqIds, group: str, kind: str, topic: str
) -> Tracing:
    """The trace of a group; `kind` is PRODUCE or CONSUME."""
    # Brokers and readers know groups of traces by the beginning of their names.
    name = GROUP.format(group=group, kind=kind)[:120]
    config = ProducerConfig(group=name, timeout=SEND_WITHIN_S, retry=ONCE)
    traces = Traces(group, instance, topic, uniq_ids)
    return Tracing(traces, Sender(instance, config, uniq_ids))
