"""Connections to brokers and name servers for threads: pooled, replaced, with requests in bulk.

    requests, each with its address → one pipeline per address → responses in the requests' order

No wait is longer than the time-out while nothing arrives. After a fork the child has no reader
threads and shares the parent's sockets: it drops them all and connects again.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from aerobee.client.connect_attempt import ConnectAttempt
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.transport import transport_error
from aerobee.errors import AerobeeError
from aerobee.remoting.client.blocking_channel import BlockingChannel
from aerobee.remoting.client.calls import refuse
from aerobee.remoting.client.link import PLAIN, Link
from aerobee.remoting.errors import CallTimedOut, ConnectFailed
from aerobee.remoting.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.steps.effects import Effect, Steps
    from aerobee.remoting.client.calls import OnRequest
    from aerobee.remoting.errors import RemotingError

T = TypeVar("T")
Outcome: TypeAlias = Command | AerobeeError
"""The response, whatever its code, or the error."""

WINDOW = 256
"""The most requests in flight on one connection: brokers refuse requests that wait for long."""


class _Arrival(NamedTuple):
    at: int
    answer: Command | None
    error: RemotingError | None


class Connections:
    """One connection per address; any thread may use them. Times in seconds.

    `serve` returns the function that handles the requests of the peer at an address, `opened` is
    called with the address of each new connection.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        serve: Callable[[str], OnRequest] = lambda _address: refuse,
        opened: Callable[[str], object] = lambda _address: None,
        link: Link = PLAIN,
    ) -> None:
        self.timeout_s = timeout_s
        self._serve = serve
        self._opened = opened
        self._link = link
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._steps_lock = threading.Lock()
        """The lock that is held while steps advance."""
        self._opening: dict[str, ConnectAttempt[threading.Lock]] = {}
        self._channels: dict[str, BlockingChannel] = {}

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin_anew()

    def known(self, address: str) -> BlockingChannel | None:
        """The open connection to `host:port`, if there is one."""
        channel = self._channels.get(address)
        return None if channel is None or channel.closed else channel

    def channel(self, address: str) -> BlockingChannel:
        """The open connection to `host:port`, or a new one.

        Raises: ConnectFailed, which names the address.
        """
        self._notice_fork()
        known = self.known(address)
        if known is not None:
            return known
        with self._lock:
            opening = self._opening.setdefault(address, ConnectAttempt(threading.Lock()))
        turn = opening.turn
        with opening.lock:
            # Another thread may have connected meanwhile.
            channel = self.known(address)
            if channel is not None:
                return channel
            opening.check(turn)
            return self._open(address, opening)

    def _open(self, address: str, opening: ConnectAttempt[threading.Lock]) -> BlockingChannel:
        with opening.noted():
            channel = BlockingChannel.connect(
                address, self.timeout_s, self._serve(address), link=self._link
            )
        with self._lock:
            self._channels[address] = channel
        self._opened(address)
        return channel

    def close(self) -> None:
        """Close all connections; the next request connects again."""
        self.drop(tuple(self._channels))

    def drop(self, addresses: Iterable[str]) -> None:
        """Close the connections to these addresses, which get no more requests."""
        self._notice_fork()
        with self._lock:
            known = [
                self._channels.pop(address) for address in addresses if address in self._channels
            ]
        for channel in known:
            channel.close()

    def leave(self, address: str, channel: BlockingChannel) -> None:
        """Use another connection for further requests to this address; this one stays open."""
        with self._lock:
            if self._channels.get(address) is channel:
                del self._channels[address]

    # ── Steps ──

    def perform(self, steps: Steps[T]) -> T:
        """Run steps and return their result. Raises: the errors of the steps."""
        return self.perform_all([steps])[0]

    def perform_all(self, many: Sequence[Steps[T]]) -> list[T]:
        """Run many steps together, with their requests in bulk, and return their results.

        Waits last their full time: signals are for clients. Raises: the first error in the order
        of the steps, after all have ended.
        """
        self._notice_fork()
        results: dict[int, T] = {}
        failed: dict[int, AerobeeError] = {}
        effects: dict[int, Effect] = {}

        def advance(at: int, outcome: Outcome | None) -> None:
            try:
                with self._steps_lock:
                    if isinstance(outcome, AerobeeError):
                        effects[at] = many[at].throw(outcome)
                    else:
                        effects[at] = many[at].send(outcome)
            except StopIteration as stop:
                results[at] = stop.value
            except AerobeeError as error:
                failed[at] = error

        try:
            for at in range(len(many)):
                advance(at, None)
            while effects:
                for at, outcome in self._carry_out(effects).items():
                    del effects[at]
                    advance(at, outcome)
        finally:
            for steps in many:
                steps.close()
        if failed:
            raise failed[min(failed)]
        return [results[at] for at in range(len(many))]

    def _carry_out(self, effects: Mapping[int, Effect]) -> Mapping[int, Outcome | None]:
        """Perform all requests; if there are none, all waits."""
        asks = {at: effect for at, effect in effects.items() if isinstance(effect, Ask)}
        if asks:
            return dict(zip(asks, self.exchange(list(asks.values())), strict=True))
        sleep(max(effect.seconds for effect in effects.values() if isinstance(effect, Wait)))
        return dict.fromkeys(effects)

    # ── Requests ──

    def exchange(self, asks: Sequence[Ask]) -> list[Outcome]:
        """Send requests, pipelined on each connection, and return their outcomes. Never raises.

        It takes at most the time-out for each 256 requests of an address; an address that answers
        none of them gets no more.
        """
        waiting: dict[str, list[int]] = defaultdict(list)
        for index, ask in enumerate(asks):
            waiting[ask.address].append(index)
        outcomes: dict[int, Outcome] = {}
        while waiting:
            round_ = {address: indexes[:WINDOW] for address, indexes in waiting.items()}
            waiting = {
                address: rest for address, indexes in waiting.items() if (rest := indexes[WINDOW:])
            }
            outcomes |= self._round(asks, round_)
            for address, sent in round_.items():
                failed = outcomes[sent[-1]]
                if isinstance(failed, AerobeeError) and address in waiting:
                    outcomes |= dict.fromkeys(waiting.pop(address), failed)
        return [outcomes[index] for index in range(len(asks))]

    def _round(self, asks: Sequence[Ask], by_address: dict[str, list[int]]) -> dict[int, Outcome]:
        """Send all requests, then wait for all responses."""
        arrived: SimpleQueue[_Arrival] = SimpleQueue()
        outcomes: dict[int, Outcome] = {}
        forget: dict[int, Callable[[], None]] = {}
        for address, indexes in by_address.items():
            try:
                channel = self.channel(address)
            except ConnectFailed as error:
                outcomes |= {index: transport_error(asks[index], error) for index in indexes}
                continue
            for index in indexes:
                forget[index] = _begin(channel, asks[index], index, arrived)
        deadline = monotonic() + self.timeout_s
        while forget:
            try:
                came = arrived.get(timeout=max(0.0, deadline - monotonic()))
            except Empty:
                break
            del forget[came.at]
            outcomes[came.at] = _outcome(asks[came.at], came)
        for index, give_up in forget.items():
            give_up()
            outcomes[index] = transport_error(asks[index], CallTimedOut("no answer in time"))
        self._drop_silent({asks[index].address for index in forget}, by_address, outcomes)
        return outcomes

    def _drop_silent(
        self, late: set[str], by_address: dict[str, list[int]], outcomes: dict[int, Outcome]
    ) -> None:
        """Close connections without any response: a dead connection may give no error.

        Requests of other threads on it are sent again by those threads.
        """
        self.drop(
            address
            for address in late
            if not any(isinstance(outcomes[index], Command) for index in by_address[address])
        )


def _begin(
    channel: BlockingChannel, ask: Ask, index: int, arrived: SimpleQueue[_Arrival]
) -> Callable[[], None]:
    return channel.begin(
        ask.header,
        ask.body,
        lambda answer, error: arrived.put(_Arrival(index, answer, error)),
        ask.timeout_s,
    )


def _outcome(ask: Ask, came: _Arrival) -> Outcome:
    if came.answer is not None:
        return came.answer
    assert came.error is not None, "a call ends with an answer or an error"
    return transport_error(ask, came.error)
