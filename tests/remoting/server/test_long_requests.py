"""Requests of many steps: how many are worked at, in which order, and what the others keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.remoting.server.long_requests import AT_ONCE, BODIES_BYTES, SHORT_BYTES
from aerobee.remoting.wire.answer import Answer
from tests.remoting.server.stage import LIMITS, HandTime, Stage, bodies, frame_of

if TYPE_CHECKING:
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Steps
    from tests.remoting.server.stage import TrickleSocket

WIDE = LIMITS._replace(max_frame_bytes=4 << 20, high_water_bytes=4 << 20)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> HandTime:
    return HandTime(monkeypatch)


class Counting:
    """A handler of as many steps as the queue id says, which counts those that have begun."""

    def __init__(self, time: HandTime) -> None:
        self.time = time
        self.at_work: set[int] = set()
        self.most = 0
        self.began: list[int] = []

    def __call__(self, header: Any, command: Any, connection: Connection) -> Steps:
        self.began.append(connection.id)
        self.at_work.add(connection.id)
        try:
            for _ in range(header.queue_id):
                self.most = max(self.most, len(self.at_work))
                self.time.now += 0.002
                yield
            return Answer(0, body=command.body)
        finally:
            self.at_work.discard(connection.id)


def ask(stage: Stage, peers: int, steps: int, body: bytes) -> list[TrickleSocket]:
    """So many peers with one request each, and the first rounds over them."""
    socks = [stage.connect()[1] for _ in range(peers)]
    for sock in socks:
        sock.incoming += frame_of(steps, body)
    while events := stage.poll(*socks):
        stage.rounds(events)
    return socks


def finish(stage: Stage) -> None:
    while stage.selector.waiting:
        stage.rounds([])


def test_few_long_requests_are_worked_at_and_all_of_them_end(time: HandTime) -> None:
    handler = Counting(time)
    stage = Stage(handler, limits=WIDE)
    body = bytes(BODIES_BYTES // 4)
    socks = ask(stage, 40, 20, body)
    assert stage.reactor.shared.inbound.total == 40 * len(body), (
        "what waits counts as bytes that came"
    )
    finish(stage)
    assert handler.most == 4
    assert handler.began == sorted(handler.began), "in the order in which they came"
    assert all(bodies(sock) == [body] for sock in socks)
    assert stage.reactor.shared.inbound.total == 0
    held = stage.reactor.shared.long_requests
    assert (held.bytes, len(held.held), len(held.waiting)) == (0, 0, 0)


def test_of_short_bodies_a_fixed_number_goes_beyond_its_first_turn(time: HandTime) -> None:
    handler = Counting(time)
    stage = Stage(handler)
    socks = ask(stage, 3 * AT_ONCE, 20, b"all the topics")
    assert len(handler.began) == len(socks)
    stage.rounds([])
    assert len(stage.reactor.shared.long_requests.held) == AT_ONCE
    finish(stage)
    assert all(bodies(sock) == [b"all the topics"] for sock in socks)


def test_one_that_is_longer_than_all_may_be_has_its_turn_between_the_others(
    time: HandTime,
) -> None:
    handler = Counting(time)
    stage = Stage(handler, limits=WIDE)
    small = bytes(SHORT_BYTES + 1)
    ask(stage, 10, 20, small)
    [big] = ask(stage, 1, 20, bytes(BODIES_BYTES + 1))
    for _ in range(30):
        ask(stage, 1, 20, small)
    finish(stage)
    assert big.taken
    assert handler.began == sorted(handler.began), "before those who came later"


@pytest.mark.parametrize("how", ["closes", "does not read"])
def test_a_place_is_given_back_by_who_leaves_or_does_not_read(time: HandTime, how: str) -> None:
    handler = Counting(time)
    stage = Stage(handler, limits=WIDE)
    ask(stage, 1, 1_000, bytes(BODIES_BYTES))
    first: Any
    [first] = stage.selector.connections.values()
    [next_one] = ask(stage, 1, 2, bytes(BODIES_BYTES))
    assert list(stage.reactor.shared.long_requests.held) == [first]
    if how == "closes":
        first.close("gone")
    else:
        sock: Any = first.sock
        sock.takes = [0]
        first.notify(1, None, bytes(WIDE.high_water_bytes + 1))
        first.write()
        assert first.paused
    while not next_one.taken:
        stage.rounds([])
    assert not stage.reactor.shared.long_requests.held
