"""Connections to brokers and name servers without an event loop: kept, replaced, asked in bulk.

    requests, each with its address → one pipeline per address → answers in the order asked

No wait is longer than the time-out while nothing arrives. After a fork the child has no readers
and shares the parent's sockets: it lets them all go and connects anew.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aerobee.errors import AerobeeError, ConnectError
from aerobee.remoting.client.blocking_channel import BlockingChannel
from aerobee.remoting.errors import CallTimedOut, ConnectFailed
from aerobee.remoting.wire.command import Command
from aerobee.transport import transport_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aerobee.remoting.errors import RemotingError
    from aerobee.steps.effects import Ask

__all__ = ["Connections", "Outcome"]

Outcome: TypeAlias = Command | AerobeeError
"""The answer, whatever its code, or why there is none."""

WINDOW = 256
"""Requests under way on one connection: brokers refuse what waits for long."""


class _Arrived(NamedTuple):
    at: int
    answer: Command | None
    error: RemotingError | None


class Connections:
    """One connection per address; any thread may use them. Times in seconds."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._channels: dict[str, BlockingChannel] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def channel(self, address: str) -> BlockingChannel:
        """The open connection to `host:port`, a new one if there is none.

        Raises: ConnectError, which names the address.
        """
        self._notice_fork()
        with self._lock:
            known = self._channels.get(address)
        if known is not None and not known.closed:
            return known
        try:
            made = BlockingChannel.connect(address, self.timeout_s)
        except ConnectFailed as error:
            raise ConnectError(str(error)) from error
        with self._lock:
            known = self._channels.get(address)
            if known is None or known.closed:
                self._channels[address] = made
                return made
        # Another thread was quicker.
        made.close()
        return known

    def exchange(self, asks: Sequence[Ask]) -> list[Outcome]:
        """What becomes of these requests, one after the other on each connection. Never raises.

        Bound: the time-out for each 256 requests of an address; one that answers none of them is
        not asked the rest.
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

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self._notice_fork()
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def drop(self, addresses: Iterable[str]) -> None:
        """Close the connections to these: nobody is to be asked there any more."""
        self._notice_fork()
        with self._lock:
            known = [self._channels.pop(one) for one in addresses if one in self._channels]
        for channel in known:
            channel.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()
            self._channels = {}

    def _round(self, asks: Sequence[Ask], by_address: dict[str, list[int]]) -> dict[int, Outcome]:
        """Send all, then wait for all."""
        arrived: SimpleQueue[_Arrived] = SimpleQueue()
        outcomes: dict[int, Outcome] = {}
        forget: dict[int, Callable[[], None]] = {}
        for address, indexes in by_address.items():
            try:
                channel = self.channel(address)
            except ConnectError as error:
                outcomes |= dict.fromkeys(indexes, error)
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
        """Close what answered nothing at all: a connection can be dead without anybody saying so.

        What others are asking on it, they ask again.
        """
        for address in late:
            if not any(isinstance(outcomes[index], Command) for index in by_address[address]):
                with self._lock:
                    channel = self._channels.pop(address, None)
                if channel is not None:
                    channel.close()


def _begin(
    channel: BlockingChannel, ask: Ask, index: int, arrived: SimpleQueue[_Arrived]
) -> Callable[[], None]:
    return channel.begin(
        ask.header,
        ask.body,
        lambda answer, error: arrived.put(_Arrived(index, answer, error)),
        ask.timeout_s,
    )


def _outcome(ask: Ask, came: _Arrived) -> Outcome:
    if came.answer is not None:
        return came.answer
    assert came.error is not None, "a call ends with an answer or an error"
    return transport_error(ask, came.error)
