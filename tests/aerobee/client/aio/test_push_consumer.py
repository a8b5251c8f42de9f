"""Push consumers against a real broker, on every front. The delay levels are a second each."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
import pytest

from aerobee import (
    BatchFailed,
    ConsumeFrom,
    ConsumeResult,
    Message,
    MessageQueue,
    ReceivedMessage,
    Reject,
    RetryLater,
)
from aerobee.errors import ConfigurationError
from aerobee.hooks import ConsumeContext, ConsumeOutcome, Hook
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker(messageDelayLevel="1s 1s 1s 1s")


@pytest.fixture(scope="module")
def mortal(start_broker: StartBroker) -> AnyBroker:
    """A broker that may be killed, and is there again when a test ends."""
    return start_broker()


async def send(front: Front, topic: str, *bodies: bytes) -> list[MessageQueue]:
    async with front.producer() as producer:
        results = await producer.send_batch([Message(topic, body) for body in bodies])
    return [result.queue for result in results]


async def until(true: Callable[[], object]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not true():  # noqa: ASYNC110  (true of threads as well)
            await anyio.sleep(0.01)


class Outcomes(Hook):
    """Writes down what was handled, in which thread or task, and what came of it."""

    def __init__(self) -> None:
        self.before: list[tuple[bytes, int]] = []
        self.after: list[tuple[ConsumeOutcome, list[bytes], type[Exception] | None]] = []

    def before_consume(self, consume: ConsumeContext) -> None:
        self.before += [(one.body, one.reconsume_times) for one in consume.messages]

    def after_consume(self, consume: ConsumeContext) -> None:
        assert consume.handled
        error = None if consume.error is None else type(consume.error)
        self.after.append((consume.outcome, [one.body for one in consume.failed], error))
        raise RuntimeError("breaks nothing")


class Seen:
    """What a handler was given: bodies and tries, in order."""

    def __init__(self, *, failing: Callable[[ReceivedMessage], Exception | None]) -> None:
        self.failing = failing
        self.calls: list[tuple[bytes, int]] = []
        self.topics: set[str] = set()

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        error = None
        for message in messages:
            self.calls.append((message.body, message.reconsume_times))
            self.topics.add(message.topic)
            error = error or self.failing(message)
        if error is not None:
            raise error

    @property
    def bodies(self) -> list[bytes]:
        return sorted(body for body, _ in self.calls)


def well(message: ReceivedMessage) -> None:
    return None


async def drained(front: Front, topic: str) -> list[bytes]:
    """All messages of a topic, as far as there are any within a moment."""
    async with front.consumer(f"reader-of-{topic.strip('%').replace('%', '-')}") as consumer:
        await consumer.assign(await consumer.queues(topic))
        for queue in consumer.assignment:
            await consumer.seek(queue, FIRST)
        found: list[ReceivedMessage] = []
        with anyio.fail_after(WITHIN_S):
            while not found:
                found += await consumer.poll(timeout=1.0)
    return [message.body for message in found]


async def test_every_message_is_handled_once_and_stays_so(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    bodies = sorted(b"%d" % n for n in range(50))
    await send(front, topic, *bodies)
    for expected in (bodies, [b"later"]):
        seen = Seen(failing=well)
        consumer = front.push(group, start_from=FIRST)
        consumer.subscribe(topic, handler=front.handler(seen))
        async with consumer:
            await until(lambda: len(seen.calls) >= len(expected))  # noqa: B023  (ends within the round)
            assert seen.bodies == expected
            assert {queue for queue in consumer.assignment if queue.topic == topic}
        await send(front, topic, b"later")
        assert seen.bodies == expected


async def test_what_failed_comes_again_alone_under_its_own_topic(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    await send(front, topic, *[b"good"] * 10, b"hard", *[b"good"] * 10)

    def failing(message: ReceivedMessage) -> Exception | None:
        hard = message.body == b"hard"
        match message.reconsume_times if hard else -1:
            case 0:
                return ValueError("an error of the handler")
            case 1:
                return RetryLater(level=2)
        return None

    seen = Seen(failing=failing)
    consumer = front.push(fresh("group"), start_from=FIRST)
    consumer.subscribe(topic, "*", front.handler(seen))
    async with consumer:
        await until(lambda: len(seen.calls) >= 23)
    assert Counter(body for body, _ in seen.calls) == {b"good": 20, b"hard": 3}
    assert [tries for body, tries in seen.calls if body == b"hard"] == [0, 1, 2]
    assert seen.topics == {topic}


async def test_what_is_rejected_or_out_of_tries_is_a_dead_letter(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"rejected", b"hopeless", b"good")
    errors = {b"rejected": Reject("never"), b"hopeless": RetryLater(level=1)}
    seen = Seen(failing=lambda message: errors.get(message.body))
    consumer = front.push(group, start_from=FIRST, max_reconsume=1)
    consumer.subscribe(topic, handler=front.handler(seen))
    async with consumer:
        await until(lambda: seen.calls.count((b"hopeless", 1)))
        dead: list[bytes] = []
        with anyio.fail_after(WITHIN_S):
            while len(dead) < 2:
                dead = await drained(front, f"%DLQ%{group}")
    assert sorted(dead) == [b"hopeless", b"rejected"]
    assert sorted(seen.calls) == [
        (b"good", 0),
        (b"hopeless", 0),
        (b"hopeless", 1),
        (b"rejected", 0),
    ]


async def test_of_a_batch_only_what_failed_comes_again(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, *[b"%d" % n for n in range(12)])
    given: list[list[bytes]] = []

    def handler(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        given.append([message.body for message in messages])
        bad = [n for n, one in enumerate(messages) if one.body == b"5" and not one.reconsume_times]
        if bad:
            raise BatchFailed(bad, level=1)
        return ConsumeResult.SUCCESS

    consumer = front.push(fresh("group"), start_from=FIRST, batch_size=4)
    consumer.subscribe(topic, handler=front.handler(handler))
    async with consumer:
        await until(lambda: sum(map(len, given)) >= 13)
    assert max(map(len, given)) <= 4
    counts = Counter(body for batch in given for body in batch)
    assert counts.pop(b"5") == 2
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("wrong", [-1, 1])
async def test_a_batch_with_a_wrong_place_comes_again(
    front: Front, fresh: Fresh, wrong: int
) -> None:
    topic = fresh("topic")
    await send(front, topic, b"x")
    tries: list[int] = []

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        tries.append(messages[0].reconsume_times)
        if len(tries) == 1:
            raise BatchFailed([wrong], level=1)

    consumer = front.push(fresh("group"), start_from=FIRST)
    consumer.subscribe(topic, handler=front.handler(handler))
    async with consumer:
        await until(lambda: len(tries) == 2)
    assert tries == [0, 1]


async def test_a_handler_that_takes_too_long_loses_its_messages(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"slow")
    tries: list[int] = []
    over = threading.Event()

    async def asynchronous(messages: Sequence[ReceivedMessage]) -> None:
        tries.append(messages[0].reconsume_times)
        if len(tries) == 1:
            await anyio.sleep_forever()

    def blocking(messages: Sequence[ReceivedMessage]) -> None:
        tries.append(messages[0].reconsume_times)
        if len(tries) == 1:
            over.wait(WITHIN_S)

    hook = Outcomes()
    consumer = front.push(fresh("group"), start_from=FIRST, handler_timeout=0.2, hooks=[hook])
    consumer.subscribe(topic, handler=blocking if front.blocking else asynchronous)
    async with consumer:
        await until(lambda: len(tries) >= 2)
        over.set()
    assert tries == [0, 1]
    outcomes = sorted(outcome.name for outcome, *_ in hook.after)
    assert outcomes == ["SUCCESS", "TIME_OUT"]


async def test_a_plain_handler_that_takes_too_long_keeps_its_worker(
    front: Front, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread can be stopped: while all are busy, no more handlers run than `concurrency`."""
    topic = fresh("topic")
    await send(front, topic, b"0", b"1")
    begun: list[bytes] = []
    over = threading.Event()

    def blocking(messages: Sequence[ReceivedMessage]) -> None:
        begun.append(messages[0].body)
        over.wait(WITHIN_S)

    consumer = front.push(fresh("group"), start_from=FIRST, concurrency=1, handler_timeout=0.2)
    consumer.subscribe(topic, handler=blocking)
    async with consumer:
        await until(lambda: "a handler took more than" in caplog.text)
        await anyio.sleep(0.3)  # Time enough for another worker, if there were one.
        assert len(begun) == 1
        over.set()
        await until(lambda: {b"0", b"1"} <= set(begun))


async def test_pulls_stop_while_handlers_are_behind(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"%d" % n for n in range(400)])
    gate = Gate(front)
    consumer = front.push(
        group,
        start_from=FIRST,
        concurrency=2,
        max_cached_messages=10,
        pull_batch=5,
    )
    consumer.subscribe(topic, handler=gate.handler)
    async with consumer, front.admin() as admin:
        await until(lambda: gate.begun == 2)
        cached: list[int] = []
        with anyio.fail_after(WITHIN_S):
            while max(cached, default=0) < 10:
                cached = await waiting(admin, group)
        await anyio.sleep(0.2)
        assert max(await waiting(admin, group)) < 10 + 5 + 2, "those at work included"
        gate.open()
        await until(lambda: len(gate.bodies) == 400)
    assert len(set(gate.bodies)) == 400


async def waiting(admin: Any, group: str) -> list[int]:
    """How many messages the members of a group have pulled of each queue."""
    members = (await admin.consumers(group)).members
    infos = [await admin.running_info(group, member.client_id) for member in members]
    return [queue.cached_messages for info in infos for queue in info.queues]


async def test_closing_waits_for_what_runs_and_hands_out_nothing_new(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"%d" % n for n in range(20)])
    gate = Gate(front)
    consumer = front.push(group, start_from=FIRST, concurrency=1)
    consumer.subscribe(topic, handler=gate.handler)
    async with anyio.create_task_group() as tasks, consumer:
        await until(lambda: gate.begun == 1)

        async def open_while_closing() -> None:
            await anyio.sleep(0.3)
            gate.open()

        tasks.start_soon(open_while_closing)
    assert len(gate.bodies) == 1
    rest = Seen(failing=well)
    consumer = front.push(group, start_from=FIRST)
    consumer.subscribe(topic, handler=front.handler(rest))
    async with consumer:
        await until(lambda: len(rest.calls) >= 19)
    assert sorted([*gate.bodies, *rest.bodies]) == sorted(b"%d" % n for n in range(20))


class Gate:
    """A handler that does not return before it may."""

    def __init__(self, front: Front) -> None:
        self.bodies: list[bytes] = []
        self.begun = 0
        self._blocking = front.blocking
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    @property
    def handler(self) -> Any:
        return self._block if self._blocking else self._wait

    async def _wait(self, messages: Sequence[ReceivedMessage]) -> None:
        self.begun += 1
        while not self._opened.is_set():  # noqa: ASYNC110  (set from any thread)
            await anyio.sleep(0.005)
        self.bodies += [message.body for message in messages]

    def _block(self, messages: Sequence[ReceivedMessage]) -> None:
        self.begun += 1
        assert self._opened.wait(WITHIN_S)
        self.bodies += [message.body for message in messages]


async def test_two_members_share_and_are_told_of_it(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"x")
    told: dict[str, list[frozenset[MessageQueue]]] = {"assigned": [], "revoked": []}

    def mine(consumer: Any) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment)

    first = front.push(
        group, on_assigned=told["assigned"].append, on_revoked=told["revoked"].append
    )
    second = front.push(group)
    for consumer in (first, second):
        consumer.subscribe(topic, handler=front.handler(Seen(failing=well)))
    async with first:
        await until(lambda: mine(first) == 4)
        async with second:
            await until(lambda: mine(first) == mine(second) == 2)
            assert not first.assignment & second.assignment
        await until(lambda: mine(first) == 4)
    gained = {queue for queues in told["assigned"] for queue in queues if queue.topic == topic}
    lost = {queue for queues in told["revoked"] for queue in queues if queue.topic == topic}
    assert (len(gained), len(lost)) == (4, 2)


async def test_a_broker_that_is_killed_and_started_again_loses_and_repeats_nothing(
    front_name: str, mortal: AnyBroker, fresh: Fresh
) -> None:
    front = Front(front_name, mortal.namesrv_address)
    topic = fresh("topic")
    places: list[tuple[MessageQueue, int]] = []
    seen: set[bytes] = set()

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        seen.update(message.body for message in messages)
        places.extend((message.queue, message.queue_offset) for message in messages)

    await send(front, topic, b"first")
    consumer = front.push(fresh("group"), start_from=FIRST, commit_interval=1.0)
    consumer.subscribe(topic, handler=front.handler(handler))
    async with consumer, front.producer(timeout=float(WITHIN_S)) as producer:
        await until(lambda: seen == {b"first"})
        sent = {b"first"}
        for number in range(60):
            if number == 30:
                await anyio.to_thread.run_sync(mortal.kill)
                await anyio.to_thread.run_sync(mortal.start)
            body = b"%d" % number
            await producer.send(Message(topic, body))
            sent.add(body)
        await until(lambda: seen >= sent)
    assert len(places) == len(set(places))


async def test_a_run_that_is_cancelled_gives_up_what_runs_and_leaves_the_group(
    front: Front, fresh: Fresh
) -> None:
    if front.blocking:
        return  # nobody cancels a thread
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"one")
    gate, seen = Gate(front), Seen(failing=well)
    consumer = front.push(group, start_from=FIRST)
    consumer.subscribe(topic, handler=gate.handler)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: gate.begun)
        tasks.cancel_scope.cancel()
    assert not gate.bodies
    again = front.push(group, start_from=FIRST)
    again.subscribe(topic, handler=front.handler(seen))
    async with again:
        await until(lambda: seen.bodies == [b"one"])
        await until(lambda: sum(queue.topic == topic for queue in again.assignment) == 4)


async def test_a_handler_may_close_its_consumer(front: Front, fresh: Fresh) -> None:
    if not front.blocking:
        return  # aclose waits for the handlers, of which that one is one
    topic = fresh("topic")
    await send(front, topic, b"one")
    consumer = front.push(fresh("group"), start_from=FIRST)
    consumer.subscribe(topic, handler=lambda _: consumer.wrapped.close())
    with anyio.fail_after(WITHIN_S):
        await consumer.run()


async def test_a_plain_function_is_a_handler_everywhere(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"one")
    seen = Seen(failing=well)
    consumer = front.push(fresh("group"), start_from=FIRST)

    decorated = consumer.subscribe(topic)(seen)
    assert decorated is seen
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await until(lambda: seen.bodies == [b"one"])
        await consumer.aclose()


async def test_options_that_cannot_work_are_refused(front: Front, fresh: Fresh) -> None:
    with pytest.raises(ConfigurationError, match="concurrency is 0"):
        front.push("g", concurrency=0)
    with pytest.raises(ConfigurationError, match="delay level 19"):
        RetryLater(level=19)
    consumer = front.push("g")
    consumer.subscribe("T", handler=print)
    with pytest.raises(ConfigurationError, match="has a handler"):
        consumer.subscribe("T", handler=print)
    with pytest.raises(ConfigurationError, match="names no tag"):
        consumer.subscribe("U", "||", handler=print)


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [(None, "SUCCESS"), (OSError("x"), "EXCEPTION"), (RetryLater(level=1), "FAILED")],
)
async def test_hooks_hear_what_handlers_do(
    front: Front, fresh: Fresh, raised: Exception | None, outcome: str
) -> None:
    topic, hook = fresh("topic"), Outcomes()
    seen = Seen(failing=lambda one: raised if not one.reconsume_times else None)
    await send(front, topic, b"one")
    consumer = front.push(fresh("group"), start_from=FIRST, hooks=[hook])
    consumer.subscribe(topic, handler=front.handler(seen))
    async with consumer:
        await until(lambda: len(hook.after) == (1 if raised is None else 2))
    first, *again = hook.after
    failed = [] if raised is None else [b"one"]
    assert first == (ConsumeOutcome[outcome], failed, raised and type(raised))
    assert again == ([] if raised is None else [(ConsumeOutcome.SUCCESS, [], None)])
    assert hook.before == seen.calls


async def test_traced_deliveries_are_told_in_the_trace_topic(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    seen = Seen(failing=lambda one: OSError("x") if not one.reconsume_times else None)
    async with front.producer() as producer:
        result = await producer.send(Message(topic, b"x", keys=["k"]))
    options = {"start_from": FIRST, "trace": True, "trace_topic": f"{topic}-trace"}
    push = front.push(group, **options)
    push.subscribe(topic, handler=front.handler(seen))
    async with push, front.consumer(f"{group}-pull", **options) as pull:
        await pull.subscribe(topic)
        while not await pull.poll(timeout=0.2):
            pass
        await until(lambda: len(seen.calls) == 2)
    told: list[list[str]] = []
    with anyio.fail_after(WITHIN_S):
        async with front.consumer(fresh("group"), start_from=FIRST) as consumer:
            await consumer.subscribe(f"{topic}-trace")
            while len(told) < 6:
                for trace in await consumer.poll(timeout=0.2):
                    assert set(trace.keys) == {result.message_id, "k"}
                    records = trace.body.decode().rstrip("\x02").split("\x02")
                    told += [one.split("\x01") for one in records]
    before = [(one[3], one[6], one[4]) for one in told if one[0] == "SubBefore"]
    after = {one[1]: (one[4], one[6]) for one in told if one[0] == "SubAfter"}
    assert sorted((who, tries, *after[request]) for who, tries, request in before) == [
        (group, "0", "false", "2"),
        (group, "1", "true", "0"),
        (f"{group}-pull", "0", "true", "0"),
    ]
