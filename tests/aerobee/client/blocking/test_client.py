"""Ctrl-C at every point of a call: no message is in no table, and the client goes on.

The interpreter handles a signal behind a call, at the start of a function and at the end of a
loop's round. `sys.settrace` raises an exception at the first such point of ours, then at the
second, and so on, until the call ends without one.
"""

import dis
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any

import pytest

import aerobee.client
import aerobee.remoting.client
from aerobee import ConsumeFrom, Message, MessageQueue
from aerobee.blocking import AdminClient, Client, Producer, PullConsumer
from aerobee.client.steps.effects import Ask, Steps
from aerobee.client.steps.polling import PullMember
from aerobee.errors import ConnectError, ForkedClientError, NoNameServerError
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import Heartbeat
from tests.conftest import AnyBroker
from tests.kit.ports import HOST

pytestmark = pytest.mark.service

OURS = tuple(
    str(Path(next(iter(package.__path__))).resolve())
    for package in (aerobee.client, aerobee.remoting.client)
)
POINTS_MAX = 5_000
"""More points than any of these calls has: it would never end."""
FIRST_POINTS = 30
"""A close decides at its first points whether another one waits for it: each is tried."""
STEP = 7
"""Where each point costs a connection or a consumer, every seventh is tried."""


@pytest.mark.parametrize("name", ["connect", "reader"])
def test_a_moment_without_threads_ends_no_client(
    broker: AnyBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The limit of a container on its processes may be reached by others, for a while."""
    start = threading.Thread.start

    def start_if_there_are_any(thread: threading.Thread) -> None:
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(thread)

    outcomes: SimpleQueue[Any] = SimpleQueue()

    def ask() -> Steps[None]:
        try:
            outcomes.put((yield Ask(address=broker.address, header=Heartbeat(), timeout_s=30.0)))
        except ConnectError as error:
            outcomes.put(error)

    with Client(broker.namesrv_address) as client:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_if_there_are_any)
            client.spawn(ask())
            assert "can't start new thread" in str(outcomes.get(timeout=30))
        client.spawn(ask())
        assert isinstance(outcomes.get(timeout=30), Command)


class Interrupted(KeyboardInterrupt):
    """The one of this test, and not of somebody at the keyboard."""


@cache
def is_ours(file: str) -> bool:
    return str(Path(file).resolve()).startswith(OURS)


def is_checked(code: CodeType, at: int) -> bool:
    """Whether the interpreter looks for signals at the end of this instruction."""
    name = dis.opname[code.co_code[at]]
    return name in ("RESUME", "JUMP_BACKWARD") or name.startswith("CALL")


@cache
def handler_of(code: CodeType, at: int) -> int | None:
    """Where an exception of the instruction is handled. Behind it that may be elsewhere."""
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]  # there is no other
    inner = [one.target for one in parse(code) if one.start <= at < one.end]
    return inner[-1] if inner else None


def interrupted_at(point: int, call: Callable[[], object]) -> bool:
    """Run the call and interrupt it at its n-th point of ours; False if it has fewer."""
    passed = 0
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal passed
        if not is_ours(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before, last[frame] = last.get(frame, 0), frame.f_lasti
            if is_checked(frame.f_code, before) and (
                handler_of(frame.f_code, before) == handler_of(frame.f_code, frame.f_lasti)
            ):
                passed += 1
                if passed == point:
                    sys.settrace(None)
                    raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def every_point(call: Callable[[], object], check: Callable[[], object], step: int = 1) -> int:
    """Interrupt the call at its points in turn, and check after each; returns how many it has."""
    for point in range(1, POINTS_MAX, step):
        if not interrupted_at(point, call):
            return point - step
        check()
    raise AssertionError(f"the call has more than {POINTS_MAX} points")


@pytest.fixture
def topic(broker: AnyBroker, fresh: Callable[[str], str]) -> str:
    name = fresh("topic")
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(name, queues=1)
    return name


def fill(broker: AnyBroker, topic: str, count: int) -> None:
    with Producer(broker.namesrv_address) as producer:
        producer.send_batch([Message(topic, b"%d" % n) for n in range(count)])


def test_no_message_is_lost_by_an_interruption_of_poll_or_commit(
    broker: AnyBroker, topic: str, fresh: Callable[[str], str]
) -> None:
    count, group = 3_000, fresh("group")
    fill(broker, topic, count)
    got: set[int] = set()
    with (
        Client(broker.namesrv_address) as client,
        PullConsumer(group, client=client, start_from=ConsumeFrom.FIRST) as consumer,
    ):
        consumer.subscribe(topic)
        (queue,) = consumer.assignment
        member = client.instance.consumers[group]
        assert isinstance(member, PullMember)
        held = member.held[queue]

        def poll() -> None:
            messages = consumer.poll(max_messages=2)
            got.update(one.queue_offset for one in messages)
            consumer.done(*messages)

        def each_is_somewhere() -> None:
            with client.lock:
                waiting = {one.queue_offset for one in held.waiting}
                assert set(range(held.next_offset)) <= got | waiting | set(held.unfinished)
            poll()
            with client.lock:
                assert held.cached_bytes == sum(len(one.body) for one in held.waiting)
                assert held.cached_bytes == held.cache.used_bytes

        assert every_point(poll, each_is_somewhere) > 20
        assert every_point(consumer.commit, each_is_somewhere, STEP) > 20
        while len(got) + len(held.unfinished) < count:
            poll()
        committed = held.commit_point
    assert set(range(committed)) <= got
    with PullConsumer(group, broker.namesrv_address) as again:
        again.subscribe(topic)
        while len(got) < count:
            messages = again.poll()
            assert messages, "a message that nobody got is not delivered again"
            got.update(one.queue_offset for one in messages)


def test_an_interrupted_send_leaves_a_producer_that_sends(broker: AnyBroker, topic: str) -> None:
    """Each message is stored once or not at all, and the next send works."""
    with Producer(broker.namesrv_address) as producer:
        producer.send(Message(topic, b"first"))
        tries = 0

        def send() -> None:
            nonlocal tries
            tries += 1
            producer.send(Message(topic, b"%d" % tries))

        between = 0

        def check() -> None:
            nonlocal between
            between += 1
            producer.send(Message(topic, b"between"))

        assert every_point(send, check, STEP) > 50
    bodies = drained(broker, topic)
    assert bodies.count(b"between") == between
    own = [one for one in bodies if one not in (b"first", b"between")]
    assert len(own) == len(set(own))
    assert b"%d" % tries in own


def drained(broker: AnyBroker, topic: str) -> list[bytes]:
    queue = MessageQueue(topic, "", 0)
    bodies: list[bytes] = []
    with PullConsumer("interrupted-reader", broker.namesrv_address) as consumer:
        (queue,) = consumer.queues(topic)
        consumer.assign([queue])
        consumer.seek(queue, ConsumeFrom.FIRST)
        end = consumer.end_offsets()[queue]
        while len(bodies) < end:
            bodies += [one.body for one in consumer.poll(max_messages=500)]
    return bodies


def test_an_interrupted_close_ends_and_commits_nothing_that_nobody_got(
    broker: AnyBroker, topic: str, fresh: Callable[[str], str]
) -> None:
    fill(broker, topic, 20)
    turns = 0
    for turn in range(1, POINTS_MAX):
        group = fresh("group")
        client = Client(broker.namesrv_address)
        client.start()
        consumer = PullConsumer(group, client=client, start_from=ConsumeFrom.FIRST)
        consumer.start()
        consumer.subscribe(topic)
        messages = consumer.poll(max_messages=3)
        consumer.done(*messages[:-1])
        beyond = max(0, turn - FIRST_POINTS)
        interrupted = interrupted_at(turn + beyond * 2 * STEP, consumer.close)
        consumer.close()
        client.close()
        with AdminClient(broker.namesrv_address) as admin:
            (committed,) = admin.committed_offsets(group, topic).values()
        assert committed is None or committed < len(messages)
        turns = turn
        if not interrupted:
            break
    assert turns > 5


# ── Closes that nobody may wait for ──


def test_closes_end_with_a_start_that_fails() -> None:
    """The first comes while the name server is silent; another waits for the end of the start."""
    with socket.create_server((HOST, 0)) as silent:
        producer = Producer(f"{HOST}:{silent.getsockname()[1]}", connect_timeout=60.0)

        def start() -> None:
            with suppress(NoNameServerError):
                producer.start()

        starting = threading.Thread(target=start)
        starting.start()
        peer, _ = silent.accept()
        producer.close()
        closing = threading.Thread(target=producer.close, daemon=True)
        closing.start()
        peer.close()
        starting.join()
        closing.join(10)
        assert not closing.is_alive()


def test_a_close_by_a_signal_handler_within_steps_ends(broker: AnyBroker) -> None:
    """The interrupted function holds the lock that the background thread needs for its end."""
    client = Client(broker.namesrv_address)
    client.start()

    def interrupted() -> None:
        with client.lock:
            client.close()

    assert in_time(interrupted)


def test_a_close_in_a_forked_process_waits_for_nobody(
    broker: AnyBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the parent that held the lock just then does not exist in the child."""
    with Client(broker.namesrv_address) as client, Producer(client=client) as producer:
        with client.lock, monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            assert in_time(producer.close)
            assert in_time(client.close)
        assert producer.send(Message(topic, b"x")).ok


def test_no_call_in_a_forked_process_waits_for_a_lock(
    broker: AnyBroker, topic: str, fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Client(broker.namesrv_address) as client,
        PullConsumer(fresh("group"), client=client) as consumer,
    ):
        consumer.subscribe(topic)
        refused: list[str] = []

        def refuse(call: Callable[[], object]) -> None:
            try:
                call()
            except ForkedClientError as error:
                refused.append(str(error))

        calls = (
            lambda: next(iter(consumer)),
            lambda: consumer.assignment,
            client.start,
            consumer.pause,
            consumer.resume,
            consumer.start,
        )
        with client.lock, monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            assert all(in_time(partial(refuse, call)) for call in calls)
        assert len(refused) == len(calls)


def in_time(call: Callable[[], object]) -> bool:
    """Whether a call, in a thread that may be left to itself, ends within seconds."""
    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(10)
    return not calling.is_alive()
