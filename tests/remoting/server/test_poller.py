"""What the poller says: level-triggered, by direction, nothing after `remove`."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from aerobee.remoting.server.poller import READ, WRITE, EpollPoller, Poller

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.trio


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


@pytest.fixture
def poller() -> Iterator[Poller]:
    made = EpollPoller()
    yield made
    made.close()


async def ready(poller: Poller) -> dict[int, int]:
    with trio.fail_after(60):
        return dict(await poller.ready())


async def is_idle(poller: Poller) -> bool:
    with trio.move_on_after(0.02) as scope:
        await poller.ready()
    return scope.cancelled_caught


async def test_what_can_be_read_is_said_until_it_is_read(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.add(ours)
    assert await is_idle(poller)
    theirs.send(b"x")
    for _ in range(3):
        assert await ready(poller) == {ours.fileno(): READ}
    ours.recv(10)
    assert await is_idle(poller)
    poller.remove(ours)


class Steps(trio.abc.Instrument):
    """Counts how often the loop came to a task."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def test_a_wait_takes_one_turn_of_the_loop(
    nursery: trio.Nursery, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    steps = Steps()
    poller = EpollPoller()
    poller.add(ours)
    served = trio.Event()

    async def wait() -> None:
        steps.task = trio.lowlevel.current_task()
        assert await poller.ready() == [(ours.fileno(), READ)]
        assert poller.waited
        served.set()

    trio.lowlevel.add_instrument(steps)
    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    theirs.send(b"x")
    with trio.fail_after(60):
        await served.wait()
    assert steps.count == 1, "beside the one that began it"
    trio.lowlevel.remove_instrument(steps)
    poller.close()


async def test_it_says_who_has_something_to_read_without_waiting_and_as_often_as_asked(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.add(ours)
    assert not poller.holding()
    theirs.send(b"x")
    for _ in range(2):
        assert set(poller.holding()) == {ours.fileno()}
    assert await ready(poller) == {ours.fileno(): READ}
    poller.interest(ours, read=False, write=False)
    assert not poller.holding(), "nobody watches"
    poller.interest(ours, read=True, write=False)
    ours.recv(10)
    assert not poller.holding()
    poller.remove(ours)


async def test_only_the_wanted_direction_is_said(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.add(ours)
    theirs.send(b"x")
    poller.interest(ours, read=False, write=True)
    assert await ready(poller) == {ours.fileno(): WRITE}
    poller.interest(ours, read=False, write=False)
    assert await is_idle(poller)
    poller.interest(ours, read=True, write=False)
    assert await ready(poller) == {ours.fileno(): READ}
    poller.remove(ours)


async def test_a_removed_socket_is_silent_and_its_number_may_come_back(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    for _ in range(3):
        poller.add(ours)
        assert await ready(poller) == {ours.fileno(): READ}
        poller.remove(ours)
        assert await is_idle(poller)


async def test_a_peer_that_closes_is_readable(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.add(ours)
    theirs.close()
    assert (await ready(poller))[ours.fileno()] & READ
    poller.remove(ours)
