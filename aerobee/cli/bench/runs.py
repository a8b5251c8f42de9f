"""Runs the benches: senders that follow a schedule, and consumers that check the messages."""

from __future__ import annotations

from contextlib import AsyncExitStack
from time import monotonic, process_time
from typing import TYPE_CHECKING

import anyio

from aerobee import ConsumeFrom, Message, Producer, PullConsumer
from aerobee.cli.bench.load import Schedule
from aerobee.cli.bench.sequence import Checker, Mark, marked, read_mark
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee import ReceivedMessage
    from aerobee.cli.bench.load import Load, Outcome
    from aerobee.cli.connection import Connection

GROUP = "aerobee_bench"
POLL_S = 0.5
POLL_AT_ONCE = 1_000
PULL_BATCH = 32
NS = 1_000_000_000


def sender_at(at: Connection) -> Producer:
    """A producer, to use in `async with`."""
    return Producer(at.namesrv, group=GROUP, **at.options())


def reader(at: Connection) -> PullConsumer:
    """A consumer that commits nothing, to use in `async with`."""
    return PullConsumer(GROUP, at.namesrv, auto_commit=False, pull_batch=PULL_BATCH, **at.options())


# ── Sending ──


async def produce(
    load: Load, outcome: Outcome, at: Connection, advance: Callable[[int], None]
) -> None:
    """Send by the schedule."""
    async with sender_at(at) as producer:
        await producer.queues(load.topic)
        await send_all(load, outcome, producer, advance)


async def send_all(
    load: Load, outcome: Outcome, producer: Producer, advance: Callable[[int], None]
) -> None:
    """Run all workers until the schedule ends; each waits for the response to its send."""
    outcome.started_s = monotonic()
    schedule = Schedule(load, outcome.started_s)
    try:
        async with anyio.create_task_group() as workers:
            for sender in range(load.workers):
                workers.start_soon(worker, load, outcome, producer, schedule, sender, advance)
    finally:
        outcome.ended_s = monotonic()
        outcome.unsent = schedule.unsent


async def worker(
    load: Load,
    outcome: Outcome,
    producer: Producer,
    schedule: Schedule,
    sender: int,
    advance: Callable[[int], None],
) -> None:
    """One sender: its messages in their order, each after the one before is acknowledged."""
    warm_at_s = outcome.started_s + load.warmup_s
    number = 0
    while (at_s := schedule.next(monotonic())) is not None:
        await anyio.sleep(max(0.0, at_s - monotonic()))
        mark = Mark(load.run, sender, number, int(at_s * NS))
        try:
            await producer.send(Message(load.topic, marked(mark, load.size)))
        except AerobeeError as error:
            outcome.fail(error)
        else:
            outcome.sent.add((sender, number))
            if at_s >= warm_at_s:
                outcome.send_latency.add(int((monotonic() - at_s) * 1_000_000))
        number += 1
        advance(1)


# ── Receiving ──


async def consume(
    load: Load, outcome: Outcome, at: Connection, advance: Callable[[int], None]
) -> None:
    """Read the topic from its first message to the end that it has now, or for the duration."""
    async with PullConsumer(
        GROUP, at.namesrv, auto_commit=False, pull_batch=PULL_BATCH, **at.options()
    ) as consumer:
        await consumer.assign(await consumer.queues(load.topic))
        for queue in consumer.assignment:
            await consumer.seek(queue, ConsumeFrom.FIRST)
        ends = await consumer.end_offsets()
        outcome.started_s = monotonic()
        try:
            with anyio.move_on_after(load.duration_s):
                while load.count is None or outcome.received < load.count:
                    if all(consumer.position(queue) >= end for queue, end in ends.items()):
                        break
                    count_in(outcome, await take(consumer), None, load, advance)
        finally:
            outcome.ended_s = monotonic()


async def take(consumer: PullConsumer) -> Sequence[ReceivedMessage]:
    """Poll once and finish the messages."""
    messages = await consumer.poll(max_messages=POLL_AT_ONCE, timeout=POLL_S)
    consumer.done(*messages)
    return messages


def count_in(
    outcome: Outcome,
    messages: Sequence[ReceivedMessage],
    checker: Checker | None,
    load: Load,
    advance: Callable[[int], None],
) -> None:
    """Count received messages; with a checker only those of this run, and check them."""
    warm_at_ns = int((outcome.started_s + load.warmup_s) * NS)
    now_ns = int(monotonic() * NS)
    for message in messages:
        if checker is not None:
            mark = read_mark(message.body, load.run)
            if mark is None:
                continue
            checker.add(mark, message.queue)
            if mark.intended_ns >= warm_at_ns:
                outcome.receive_latency.add((now_ns - mark.intended_ns) // 1_000)
        outcome.received += 1
        outcome.received_bytes += len(message.body)
    advance(len(messages))


async def roundtrip(
    load: Load, outcome: Outcome, at: Connection, advance: Callable[[int], None]
) -> None:
    """Send by the schedule while every consumer reads everything; then check what each one got."""
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(sender_at(at))
        queues = await producer.queues(load.topic)
        consumers = [
            await stack.enter_async_context(
                PullConsumer(
                    GROUP, at.namesrv, auto_commit=False, pull_batch=PULL_BATCH, **at.options()
                )
            )
            for _ in range(load.consumers)
        ]
        for consumer in consumers:
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek(queue, ConsumeFrom.LAST)
        outcome.checkers = [Checker() for _ in consumers]
        complete = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for consumer, checker in zip(consumers, outcome.checkers, strict=True):
                tasks.start_soon(check_all, load, outcome, consumer, checker, complete)
            await send_all(load, outcome, producer, advance)
            with anyio.move_on_after(load.drain_s):
                await complete.wait()
            tasks.cancel_scope.cancel()


async def check_all(
    load: Load, outcome: Outcome, consumer: PullConsumer, checker: Checker, complete: anyio.Event
) -> None:
    """Receive and check until cancelled; sets `complete` when every sent message has arrived."""
    while True:
        count_in(outcome, await take(consumer), checker, load, lambda _count: None)
        if outcome.ended_s and not outcome.lost:
            complete.set()


# ── Idle ──


async def idle(
    load: Load, outcome: Outcome, at: Connection, advance: Callable[[int], None]
) -> None:
    """Stay connected, with consumers that wait for messages which never arrive."""
    async with AsyncExitStack() as stack:
        for number in range(load.consumers):
            consumer = await stack.enter_async_context(
                PullConsumer(
                    f"{GROUP}_idle_{number}",
                    at.namesrv,
                    start_from=ConsumeFrom.LAST,
                    **at.options(),
                )
            )
            await consumer.subscribe(load.topic)
        outcome.started_s, before_s = monotonic(), process_time()
        await anyio.sleep(load.duration_s)
        outcome.ended_s, outcome.cpu_s = monotonic(), process_time() - before_s
