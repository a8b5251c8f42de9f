"""OpenTelemetry for producers and consumers, as a hook; needs the extra `otel` (its API alone).

    Producer(hooks=[OpenTelemetry()])

The context of a trace travels with each message, in its properties, as W3C `traceparent` and
`tracestate` unless another propagator is set. Names and attributes are those of OpenTelemetry's
semantic conventions for messaging and for RocketMQ. Without an SDK set up, it does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aerobee.hooks import ConsumeOutcome, Hook

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as missing:
    raise ImportError(
        "aerobee.otel needs a package that is not installed: pip install 'aerobee[otel]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.hooks import ConsumeContext, SendContext

__all__ = ["OpenTelemetry"]

SYSTEM = {"messaging.system": "rocketmq"}


class OpenTelemetry(Hook):
    """Spans of sends, deliveries and handlers, joined across processes.

    `send T` stands for a send with all its tries. `process T` stands around a handler, which sees
    it as the current span: a child of what sent the message, or of none and linked to all where a
    batch is handled at once. `receive T` says what a pull or POP consumer handed out, linked to
    what sent it; `context_of` gives the parent for a span of your own around each message.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("aerobee", tracer_provider=tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()

    # ── Sends ──

    def before_send(self, send: SendContext) -> None:
        """Begin a span, and have the messages carry its context."""
        # In the background the caller is not known any more, and the task is that of another.
        caller = contexts.Context() if send.background else None
        span = self._tracer.start_span(
            f"send {send.topic}", caller, SpanKind.PRODUCER, attributes=sent_attributes(send)
        )
        send.notes[self] = span
        self._propagator.inject(send.properties, trace.set_span_in_context(span, caller))

    def after_send(self, send: SendContext) -> None:
        """End it."""
        span = cast("Span", send.notes[self])
        if send.results:
            first = send.results[0]
            span.set_attribute("messaging.destination.partition.id", str(first.queue.queue_id))
            span.set_attribute("messaging.rocketmq.broker.name", first.queue.broker_name)
        if send.error is not None:
            fail(span, send.error)
        span.end()

    # ── Deliveries ──

    def context_of(self, message: ReceivedMessage) -> Context:
        """What sent the message, to begin spans under."""
        return self._propagator.extract(message.properties, contexts.Context())

    def before_consume(self, consume: ConsumeContext) -> None:
        """Begin a span, current while the handler runs."""
        senders = [self.context_of(message) for message in consume.messages]
        parent = senders[0] if consume.handled and len(senders) == 1 else contexts.Context()
        spans = (trace.get_current_span(sender).get_span_context() for sender in senders)
        operation = "process" if consume.handled else "receive"
        span = self._tracer.start_span(
            f"{operation} {consume.messages[0].topic}",
            parent,
            SpanKind.CONSUMER if consume.handled else SpanKind.CLIENT,
            attributes=consumed_attributes(consume, operation),
            links=[Link(one) for one in spans if one.is_valid],
        )
        token = None
        if consume.handled:
            # Who polls keeps the current span that it has.
            token = contexts.attach(trace.set_span_in_context(span, parent))
        consume.notes[self] = (span, token)

    def after_consume(self, consume: ConsumeContext) -> None:
        """End it."""
        span, token = cast("tuple[Span, Token[Context] | None]", consume.notes[self])
        if token is not None:
            contexts.detach(token)
        if consume.error is not None:
            fail(span, consume.error)
        elif consume.outcome is not ConsumeOutcome.SUCCESS:
            span.set_attribute("error.type", consume.outcome.name)
            span.set_status(Status(StatusCode.ERROR, consume.outcome.name))
        span.end()


def sent_attributes(send: SendContext) -> Mapping[str, AttributeValue]:
    """What is known of a send before it begins."""
    first = send.messages[0]
    found: dict[str, AttributeValue] = {
        **SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": send.topic,
        "messaging.rocketmq.client_group": send.group,
        "messaging.rocketmq.message.type": message_type(first, half=send.half),
    }
    if first.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = first.delay_level
    if len(send.messages) > 1:
        return {**found, "messaging.batch.message_count": len(send.messages)}
    return {
        **found,
        "messaging.message.id": send.message_ids[0],
        **of_message(first.tag, first.keys, len(first.body), first.ordering_key),
    }


def consumed_attributes(consume: ConsumeContext, operation: str) -> Mapping[str, AttributeValue]:
    """What is known of messages in hand."""
    first = consume.messages[0]
    found: dict[str, AttributeValue] = {
        **SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": first.topic,
        "messaging.destination.partition.id": str(first.queue.queue_id),
        "messaging.consumer.group.name": consume.group,
    }
    if len(consume.messages) > 1:
        return {**found, "messaging.batch.message_count": len(consume.messages)}
    return {
        **found,
        "messaging.message.id": first.message_id,
        **of_message(first.tag, first.keys, len(first.body), first.ordering_key),
    }


def of_message(
    tag: str | None, keys: object, size_bytes: int, group: str | None
) -> Mapping[str, AttributeValue]:
    """What is known of one message; nothing of what it does not have."""
    found: dict[str, AttributeValue] = {"messaging.message.body.size": size_bytes}
    if tag:
        found["messaging.rocketmq.message.tag"] = tag
    if keys:
        found["messaging.rocketmq.message.keys"] = tuple(cast("tuple[str, ...]", keys))
    if group:
        found["messaging.rocketmq.message.group"] = group
    return found


def message_type(message: Message, *, half: bool) -> str:
    """The kind of a message, in the words of the conventions."""
    if half:
        return "transaction"
    if message.delayed:
        return "delay"
    return "fifo" if message.ordering_key else "normal"


def fail(span: Span, error: Exception) -> None:
    """Say why it failed."""
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
