"""A whole broker against a dict: sends, delays, pulls, hand-backs, restarts, kills as they come.

Real sockets, virtual time, a disk that can end the process. Invariant: every acknowledged send, and
every acknowledged hand-back, is delivered once; after a kill perhaps again; never early, never
altered.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aerobee.remoting.wire.codes import RequestCode
from aerobee.testing import TestBroker
from tests.kit.faulty_disk import FaultyDisk, PowerCut
from tests.kit.raw_client import (
    RawConnection,
    properties_text,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)

if TYPE_CHECKING:
    from tests.kit.raw_client import RawAnswer, RawRecord

pytestmark = pytest.mark.faults

GROUP, TOPIC = "g", "t"
RETRY = f"%RETRY%{GROUP}"
QUEUES = {(TOPIC, 0), (TOPIC, 1), (RETRY, 0)}
LEVELS_S = (1, 5, 10)
SETTINGS = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS_S),
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 400,
}
DRAIN_S = 2 * sum(LEVELS_S)
DRAIN_ROUNDS = 6


class MortalBroker(TestBroker):
    """A broker whose process can end between two instructions."""

    def _disk(self) -> FaultyDisk:
        self.mortal = FaultyDisk(self.data)
        return self.mortal

    def kill(self) -> None:
        """Nothing is closed, nothing saved; the page cache stays."""
        self.mortal.dead = True
        with suppress(PowerCut, BaseExceptionGroup):
            self.stop()
        self.mortal.kill()


class Machine(RuleBasedStateMachine):
    """What clients do, and what they may expect."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory(prefix="aerobee-")
        self.broker = MortalBroker(Path(self.home.name), SETTINGS, virtual_time=True)
        self.broker.start()
        self.killed = False
        self.wanted: dict[str, int] = {}
        """Body → how often it must be delivered."""
        self.due_ms: dict[str, int] = {}
        """Body → not before."""
        self.delivered: dict[str, int] = {}
        self.at: dict[tuple[str, int], int] = {}
        """Queue → where the consumer goes on."""
        self.last: RawRecord | None = None

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.broker.stop()
            self.home.cleanup()

    def call(self, code: RequestCode, fields: dict[str, object], body: bytes = b"") -> RawAnswer:
        """On a connection of its own: a jump of time lets the others expire."""
        with RawConnection(self.broker.address) as connection:
            return connection.call(int(code), fields, body)

    # ── what clients do ──

    @initialize()
    def begin(self) -> None:
        fields = topic_fields(TOPIC, 2)
        assert self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0

    @rule(queue_id=st.integers(0, 1), level=st.integers(0, len(LEVELS_S)))
    def send(self, queue_id: int, level: int) -> None:
        body = f"m{len(self.wanted)}"
        properties = properties_text(DELAY=str(level)) if level else ""
        fields = send_fields(TOPIC, queue_id, i=properties)
        begun_ms = self.broker.now_ms()
        assert self.call(RequestCode.SEND_MESSAGE_V2, fields, body.encode()).code == 0
        self.wanted[body] = 1
        self.due_ms[body] = begun_ms + (1_000 * LEVELS_S[level - 1] if level else 0)

    @rule(queue=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 8))
    def consume(self, queue: tuple[str, int], count: int) -> None:
        self.pull(queue, count)

    def pull(self, queue: tuple[str, int], count: int) -> int:
        """What is there; how many came."""
        topic, queue_id = queue
        asked = self.at.get(queue, 0)
        answer = self.call(
            RequestCode.PULL_MESSAGE, pull_fields(GROUP, topic, queue_id, asked, maxMsgNums=count)
        )
        if answer.code != 0:
            return 0
        found = list(records(answer.body))
        assert [one.queue_offset for one in found] == list(range(asked, asked + len(found)))
        for record in found:
            body = record.body.decode()
            self.delivered[body] = self.delivered.get(body, 0) + 1
            assert record.store_timestamp >= self.due_ms[body], f"{body} came early"
        self.at[queue] = asked + len(found)
        self.last = found[-1]
        return len(found)

    @rule()
    def commit(self) -> None:
        for (topic, queue_id), at in self.at.items():
            fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id}
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            assert self.call(code, fields | {"commitOffset": at}).code == 0

    @precondition(lambda self: self.last is not None)
    @rule(level=st.integers(1, 2))
    def hand_back(self, level: int) -> None:
        """The last one delivered is wanted again."""
        record, self.last = self.last, None
        assert record is not None
        body = record.body.decode()
        fields = {"offset": record.physical_offset, "group": GROUP, "delayLevel": level}
        begun_ms = self.broker.now_ms()
        assert self.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
        self.wanted[body] += 1
        self.due_ms[body] = min(self.due_ms[body], begun_ms + 1_000 * LEVELS_S[level - 1])

    @rule(seconds=st.sampled_from([0.5, 2.0, 7.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.broker.advance(seconds, jumps=20)

    @rule()
    def restart(self) -> None:
        assert self.broker.stop()
        self.start_again()

    @rule()
    def kill(self) -> None:
        self.killed = True
        self.broker.kill()
        self.start_again()

    def start_again(self) -> None:
        self.broker.start()
        self.last = None
        for topic, queue_id in QUEUES & self.at.keys():
            fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id}
            answer = self.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
            at = int(answer.ext["offset"]) if answer.code == 0 else 0
            assert at <= self.at[topic, queue_id], "an offset that nobody committed"
            self.at[topic, queue_id] = at
            # What was delivered behind it comes again.
            self.killed = True

    # ── what they may expect ──

    @invariant()
    def nothing_comes_that_nobody_sent(self) -> None:
        assert self.delivered.keys() <= self.wanted.keys()

    def drain(self) -> None:
        """In the end everything has come: as often as it should, or more often after a kill."""
        for _ in range(DRAIN_ROUNDS):
            self.broker.advance(DRAIN_S, jumps=40)
            for queue in sorted(QUEUES):
                while self.pull(queue, 32):
                    pass
        for body, times in self.wanted.items():
            came = self.delivered.get(body, 0)
            assert came >= times, f"{body} came {came} times, not {times}"
            assert self.killed or came == times, f"{body} came {came} times, not {times}"


TestBrokerModel = Machine.TestCase
TestBrokerModel.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
