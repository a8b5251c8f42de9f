"""Sends trace records, collected for some seconds, as messages of the trace topic.

A lost trace is no error, and trace messages are not traced. Source: client §15.2
(AsyncTraceDispatcher).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from aerobee.client.message import Message
from aerobee.client.settings.client import RetryPolicy
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.effects import Wait
from aerobee.client.steps.sending import Sender
from aerobee.client.steps.traces import Traces
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.messages import UniqIds
    from aerobee.client.steps.traces import Trace

FLUSH_S = 5.0
"""How long a record waits for further ones."""
SEND_WITHIN_S = 5.0
MESSAGE_BYTES = 128_000
"""The most characters of one trace message."""
KEYS_BYTES = 16_384
"""The most bytes of keys of one trace message: a batch has many ids, and properties are bounded."""
RECORDS_MAX = 20
"""The most records of one trace message."""
GROUP = "_INNER_TRACE_PRODUCER-{group}-{kind}"
PRODUCE, CONSUME = "PRODUCE", "CONSUME"
CLOSE_WITHIN_S = 1.0
"""How long a close waits for the last records."""
ONCE = RetryPolicy(attempts=2, patient=False)


@dataclass(slots=True)
class Tracing:
    """Sends the records of `traces`."""

    traces: Traces
    sender: Sender

    def run(self) -> Steps[None]:
        """Send records repeatedly, until the client closes."""
        instance = self.sender.instance
        while not instance.closing.is_set:
            yield Wait(self.traces.wanted, FLUSH_S)
            self.traces.wanted.clear()
            yield from self.flush(instance.clock.monotonic() + SEND_WITHIN_S)

    def close(self) -> Steps[None]:
        """Send the remaining records, within the time of a close."""
        yield from self.flush(self.sender.instance.clock.monotonic() + CLOSE_WITHIN_S)

    def flush(self, until_s: float) -> Steps[None]:
        """Send the waiting records, as far as the time allows."""
        instance = self.sender.instance
        while self.traces.waiting and instance.clock.monotonic() < until_s:
            traces = self._take()
            left_s = until_s - instance.clock.monotonic()
            message = Message(
                self.traces.topic,
                "".join(trace.text for trace in traces).encode(),
                keys=keys_within(KEYS_BYTES, (key for trace in traces for key in trace.keys)),
            )
            try:
                yield from self.sender.send(message, None, left_s, require_ok=False)
            except AerobeeError as error:
                instance.log_once("trace", "a trace is lost: %s", error)
            else:
                instance.works_again("trace")

    def _take(self) -> list[Trace]:
        """Remove and return the oldest records of one topic, as many as fit into a message."""
        waiting = self.traces.waiting
        traces = [waiting.popleft()]
        size = len(traces[0].text)
        while waiting and len(traces) < RECORDS_MAX and waiting[0].topic == traces[0].topic:
            size += len(waiting[0].text)
            if size > MESSAGE_BYTES:
                break
            traces.append(waiting.popleft())
        return traces


def keys_within(size_bytes: int, keys: Iterable[str]) -> tuple[str, ...]:
    """The first of these keys without duplicates, as many as fit into so many bytes."""
    unique = tuple(dict.fromkeys(keys))
    ends = accumulate(len(key.encode()) + 1 for key in unique)
    return unique[: sum(1 for _ in takewhile(size_bytes.__ge__, ends))]


def traced(sender: Sender) -> Tracing | None:
    """The trace of a producer, if its options enable it; it begins with the next send."""
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
    # Brokers and readers recognise the groups of traces by their prefix.
    name = GROUP.format(group=group, kind=kind)[:120]
    config = ProducerConfig(group=name, timeout=SEND_WITHIN_S, retry=ONCE)
    traces = Traces(group, instance, topic, uniq_ids)
    return Tracing(traces, Sender(instance, config, uniq_ids))
