"""The way of a request from an RPC to its handler: the worker of the port, and steps that go on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.broker.core.feature import HeldRequests
    from aerobee.broker.grpc.caller import GrpcCaller
    from aerobee.remoting.server.worker import Worker
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command


class Door:
    """Requests go in here; `worker` is set when the port listens, before the first one."""

    worker: Worker

    def __init__(self, held: Sequence[HeldRequests], flush: Callable[[], None]) -> None:
        self._held = held
        self._flush = flush
        self._going_on: deque[GrpcCaller] = deque()
        self._more = trio.Event()

    def request(self, caller: GrpcCaller, command: Command, *, own: bool = False) -> None:
        """Serve a request: gate, pool, handler. `own`: it is ours, and needs no account."""
        self.worker.request(caller, command, own=own)
        self._unless_done(caller)

    def go_on(self, caller: GrpcCaller) -> None:
        """Go on with the current request of a caller, or with its next, in turns with others."""
        self._going_on.append(caller)
        self._more.set()

    def _unless_done(self, caller: GrpcCaller) -> None:
        if caller.current is not None and not caller.postponed:
            self.go_on(caller)

    def failed(self, command: Command, caller: GrpcCaller, error: Exception) -> Answer:
        """The answer to a request that raised an error."""
        return self.worker.failed(command, caller, error)

    def drop_held(self, caller: GrpcCaller) -> None:
        """Drop what is held for a caller that has gone."""
        for held in self._held:
            held.closed(caller)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Go on with requests in steps until cancelled."""
        task_status.started()
        while True:
            await self._more.wait()
            while self._going_on:
                caller = self._going_on.popleft()
                if caller.current is None:
                    caller.ask_next()
                elif not caller.postponed:
                    self.worker.continued(caller)
                    self._unless_done(caller)
                self._flush()
                await trio.lowlevel.checkpoint()
            self._more = trio.Event()
