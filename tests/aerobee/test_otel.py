"""Spans as OpenTelemetry's SDK gets them: what they say, and that they join across processes."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, get_current_span

from aerobee import ConsumeFrom, Message, ReceivedMessage, Reject
from aerobee.errors import BrokerError
from aerobee.otel import OpenTelemetry
from tests.aerobee.client.fronts import Front

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


class Spans:
    """An SDK that keeps what ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.hook = OpenTelemetry(tracer_provider=self.provider)

    def named(self, prefix: str) -> list[ReadableSpan]:
        return [one for one in self._kept.get_finished_spans() if one.name.startswith(prefix)]

    async def wait_for(self, prefix: str, count: int) -> list[ReadableSpan]:
        with anyio.fail_after(WITHIN_S):
            while len(self.named(prefix)) < count:  # noqa: ASYNC110  (ended in any thread)
                await anyio.sleep(0.01)
        return self.named(prefix)


@pytest.fixture
def spans() -> Spans:
    return Spans()


Place = tuple[int, int]


def place(context: SpanContext | None) -> Place:
    """A trace and a span in it."""
    assert context is not None
    return context.trace_id, context.span_id


def own(span: ReadableSpan) -> Place:
    return place(span.get_span_context())


def said(span: ReadableSpan) -> dict[str, Any]:
    return {
        name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()
    }


async def test_a_handler_works_under_the_span_of_the_send(
    front: Front, fresh: Fresh, spans: Spans
) -> None:
    topic, group = fresh("topic"), fresh("group")
    tracer = spans.provider.get_tracer("shop")

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        with tracer.start_as_current_span("work"):
            assert messages[0].body == b"one"

    consumer = front.push(group, start_from=FIRST, hooks=[spans.hook])
    consumer.subscribe(topic, handler=front.handler(handle))
    async with front.producer(group="shop", hooks=[spans.hook]) as producer:
        with tracer.start_as_current_span("order"):
            sent = await producer.send(Message(topic, b"one", tag="A", keys=["k1", "k2"]))
    async with consumer:
        (process,) = await spans.wait_for("process", 1)
    (order,), (send,), (work,) = map(spans.named, ("order", "send", "work"))
    assert (send.name, send.kind) == (f"send {topic}", SpanKind.PRODUCER)
    assert (process.name, process.kind) == (f"process {topic}", SpanKind.CONSUMER)
    for parent, child in ((order, send), (send, process), (process, work)):
        assert child.parent is not None
        assert place(child.parent) == own(parent)
    assert [place(link.context) for link in process.links] == [own(send)]
    both = {
        "system": "rocketmq",
        "destination.name": topic,
        "destination.partition.id": str(sent.queue.queue_id),
        "message.id": sent.message_id,
        "message.body.size": 3,
        "rocketmq.message.tag": "A",
        "rocketmq.message.keys": ("k1", "k2"),
    }
    assert said(send) == both | {
        "operation.name": "send",
        "operation.type": "send",
        "rocketmq.client_group": "shop",
        "rocketmq.message.type": "normal",
        "rocketmq.broker.name": sent.queue.broker_name,
    }
    assert said(process) == both | {
        "operation.name": "process",
        "operation.type": "process",
        "consumer.group.name": group,
    }


async def test_a_batch_is_linked_to_what_sent_it_and_a_poll_too(
    front: Front, fresh: Fresh, spans: Spans
) -> None:
    topic = fresh("topic")
    seen: list[int] = []
    async with front.producer(hooks=[spans.hook]) as producer:
        await producer.send_batch([Message(topic, b"%d" % n) for n in range(3)])
    push = front.push(fresh("group"), start_from=FIRST, batch_size=3, hooks=[spans.hook])
    push.subscribe(topic, handler=front.handler(lambda messages: seen.append(len(messages))))
    pull = front.consumer(fresh("group"), start_from=FIRST, hooks=[spans.hook])
    async with push, pull:
        await spans.wait_for("process", 1)
        await pull.subscribe(topic)
        with anyio.fail_after(WITHIN_S):
            while not (polled := await pull.poll(timeout=0.2)):
                pass
    assert not get_current_span().get_span_context().is_valid
    (send,), (process, *_), (receive, *_) = map(spans.named, ("send", "process", "receive"))
    assert said(send)["batch.message_count"] == 3
    for span, count in ((process, seen[0]), (receive, len(polled))):
        assert span.parent is None or count == 1
        assert {place(link.context) for link in span.links} == {own(send)}
        assert said(span).get("batch.message_count", 1) == count
    assert receive.kind is SpanKind.CLIENT
    under = spans.hook.context_of(polled[0])
    assert place(get_current_span(under).get_span_context()) == own(send)


async def test_what_failed_is_marked_so(front: Front, fresh: Fresh, spans: Spans) -> None:
    topic = fresh("topic")
    huge = {"max_message_size": 8 << 20, "compression": None}
    async with front.producer(hooks=[spans.hook], **huge) as producer:
        await producer.send(Message(topic, b"poison"))
        with pytest.raises(BrokerError):
            await producer.send(Message(topic, bytes(5 << 20)))

    def reject(messages: Sequence[ReceivedMessage]) -> None:
        raise Reject

    consumer = front.push(fresh("group"), start_from=FIRST, hooks=[spans.hook])
    consumer.subscribe(topic, handler=front.handler(reject))
    async with consumer:
        (process,) = await spans.wait_for("process", 1)
    sends = spans.named("send")
    assert [one.status.status_code for one in sends] == [StatusCode.UNSET, StatusCode.ERROR]
    assert said(sends[1])["error.type"] == "MessageIllegalError"
    assert (process.status.status_code, said(process)["error.type"]) == (
        StatusCode.ERROR,
        "Reject",
    )


async def test_sends_in_the_background_have_no_foreign_parent(
    front: Front, fresh: Fresh, spans: Spans
) -> None:
    topic = fresh("topic")
    async with front.producer(hooks=[spans.hook]) as producer:
        with spans.provider.get_tracer("shop").start_as_current_span("order"):
            await producer.send_soon(Message(topic, b"one"))
            await producer.flush()
    (send,) = spans.named("send")
    assert send.parent is None


def test_without_the_package_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try: import aerobee.otel\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'aerobee[otel]'" in done.stdout
