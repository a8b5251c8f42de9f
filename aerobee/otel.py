"""OpenTelemetry for producers and consumers, as a hook; needs the extra `otel` (its API alone).

    Producer(hooks=[OpenTelemetry()])

Messages carry the trace context in their properties, as W3C `traceparent` and `tracestate` unless
another propagator is set. Names and attributes are those of OpenTelemetry's semantic conventions
for messaging and for RocketMQ. It does nothing without a configured OpenTelemetry SDK.
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
    """A hook that makes spans of sends, deliveries and handlers, joined across processes.

    `send T` covers a send with all its tries. `process T` covers a handler, which has it as the
    current span: a child of the send's span, or for a batch a root span with links to all sends.
    `receive T` records the messages that a pull or POP consumer returned, with links to the sends;
    `context_of` gives the parent for a span of your own around each message.
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
        """Start a span, and inject its context into the messages."""
        # A background send has lost its caller, and runs in a task of another one.
        caller = contexts.Context() if send.background else None
        span = self._tracer.start_span(
            f"send {send.topic}", caller, SpanKind.PRODUCER, attributes=sent_attributes(send)
        )
        send.notes[self] = span
        self._propagator.inject(send.properties, trace.set_span_in_context(span, caller))

    def after_send(self, send: SendContext) -> None:
        """End the span of the send."""
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
        """The context of a message's send, as the parent of further spans."""
        return self._propagator.extract(message.properties, contexts.Context())

    def before_consume(self, consume: ConsumeContext) -> None:
        """Start a span, current while a handler runs."""
        senders = [self.context_of(message) for message in consume.messages]
        parent = senders[0] if consume.handled and len(senders) == 1 else contexts.Context()
        spans = (trace.get_current_span(sender).get_span_context() for sender in senders)
        operation = "process" if consume.handled else "receive"
        span = self._tracer.start_span(
            f"{operation} {consume.messages[0].topic}",
            parent,
            SpanKind.CONSUMER if consume.handled else SpanKind.CLIENT,
            attributes=consumed_attributes(consume, operation),
            links=[Link(span) for span in spans if span.is_valid],
        )
        token = None
        if consume.handled:
            # A pull or POP consumer's caller keeps its current span.
            token = contexts.attach(trace.set_span_in_context(span, parent))
        consume.notes[self] = (span, token)

    def after_consume(self, consume: ConsumeContext) -> None:
        """End the span of the delivery."""
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
    """The attributes of a send that are known before it starts."""
    first = send.messages[0]
    attributes: dict[str, AttributeValue] = {
        **SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": send.topic,
        "messaging.rocketmq.client_group": send.group,
        "messaging.rocketmq.message.type": message_type(first, half=send.half),
    }
    if first.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = first.delay_level
    if len(send.messages) > 1:
        return {**attributes, "messaging.batch.message_count": len(send.messages)}
    return {
        **attributes,
        "messaging.message.id": send.message_ids[0],
        **of_message(first.tag, first.keys, len(first.body), first.ordering_key),
    }


def consumed_attributes(consume: ConsumeContext, operation: str) -> Mapping[str, AttributeValue]:
    """The attributes of received messages."""
    first = consume.messages[0]
    attributes: dict[str, AttributeValue] = {
        **SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": first.topic,
        "messaging.destination.partition.id": str(first.queue.queue_id),
        "messaging.consumer.group.name": consume.group,
    }
    if len(consume.messages) > 1:
        return {**attributes, "messaging.batch.message_count": len(consume.messages)}
    return {
        **attributes,
        "messaging.message.id": first.message_id,
        **of_message(first.tag, first.keys, len(first.body), first.ordering_key),
    }


def of_message(
    tag: str | None, keys: object, size_bytes: int, group: str | None
) -> Mapping[str, AttributeValue]:
    """The attributes of one message, without those that it does not have."""
    attributes: dict[str, AttributeValue] = {"messaging.message.body.size": size_bytes}
    if tag:
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys:
        attributes["messaging.rocketmq.message.keys"] = tuple(cast("tuple[str, ...]", keys))
    if group:
        attributes["messaging.rocketmq.message.group"] = group
    return attributes


def message_type(message: Message, *, half: bool) -> str:
    """The message type in the terms of the semantic conventions."""
    if half:
        return "transaction"
    if message.delayed:
        return "delay"
    return "fifo" if message.ordering_key else "normal"


def fail(span: Span, error: Exception) -> None:
    """Record an error as the status of a span."""
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
