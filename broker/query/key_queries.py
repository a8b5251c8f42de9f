"""QUERY_MESSAGE: queries by key, in steps that take turns.

A query may have to look at a million entries of the index and at thousands of records. So it is
searched in steps of about a millisecond, in threads for queries alone, with a pause between two of
them. Connections take turns, one query of each at a time, so that an ordinary query is soon
answered behind any number of long ones. A query whose client has gone ends with its step, and all
of them do when the broker stops. Source: remoting §3.8, store format §7.3 (QueryMessageProcessor).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from aerobee.broker.errors import CONTENT_ERRORS, Refusal
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import query as headers
from aerobee.store.index.key_index import QUERY_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Later
    from aerobee.remoting.wire.command import Command
    from aerobee.store.index.key_search import KeySearch
    from aerobee.store.message_store import MessageStore

QUERIES_OF_CONNECTION: Final = 64
"""Queries of one connection that wait; beyond it they are refused."""
REST_S: Final = 0.003
"""The pause after a step: threads share the interpreter with the loop, which has most of it."""

PAUSED_S: Final = 0.020
"""The pause when no peer whose query is next reads its answers."""

NOTHING: Final = "can not find message, maybe time range not correct"
STOPPING: Final = "the broker is stopping, ask another one"


class _Query(NamedTuple):
    """One query whose turn will come."""

    command: Command
    search: KeySearch


class KeyQueries:
    """Code 12. Records are sent as they are stored; clients compare keys once more."""

    def __init__(self, store: MessageStore, flush: Callable[[], None]) -> None:
        """`flush` sends the answers that are ready."""
        self.store = store
        self._flush = flush
        self._waiting: dict[Caller, deque[_Query]] = {}
        """The queries of each connection, in order; one that is at work is the first."""
        self._turns: deque[Caller] = deque()
        """Connections whose next step nobody works at, in the order of their turns."""
        self._wanted = trio.Event()
        self._stopping = False

    async def by_key(
        self, header: headers.QueryMessage, command: Command, connection: Caller
    ) -> Later:
        """QUERY_MESSAGE: the newest messages with a key in a time range, in the order of the
        log.
        """
        index = self.store.index
        await index.fresh()
        if self._stopping:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, STOPPING)
        waiting = self._waiting.get(connection, ())
        if len(waiting) >= QUERIES_OF_CONNECTION:
            remark = f"{QUERIES_OF_CONNECTION} queries by key of this connection wait already"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
        most = self.store.config.default_query_max_num if header.unique_key else header.max_num
        search = index.search(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp
        )
        if connection not in self._waiting:
            self._waiting[connection] = deque()
            self._turns.append(connection)
        self._waiting[connection].append(_Query(command, search))
        self._wanted.set()
        return HELD

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Search until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(QUERY_THREADS):
                nursery.start_soon(self._work)
            task_status.started()

    async def _work(self) -> None:
        paused = 0  # connections behind each other whose peers do not read
        while True:
            while not self._turns:
                # All threads that have nothing to do wait for the same event.
                if self._wanted.is_set():
                    self._wanted = trio.Event()
                await self._wanted.wait()
            connection = self._turns.popleft()
            if connection.paused and not connection.closed:
                paused += 1
                self._turns.append(connection)
                if paused >= len(self._turns):
                    await trio.sleep(PAUSED_S)
                    paused = 0
                continue
            paused = 0
            await self._one_step(connection)
            self._flush()
            if self._turns:
                await trio.sleep(REST_S)

    async def _one_step(self, connection: Caller) -> None:
        """One step of the first query of a connection, which may be its last."""
        waiting = self._waiting[connection]
        command, search = waiting[0]
        failure: Exception | None = None
        try:
            await self.store.index.step(search)
        except (OSError, *CONTENT_ERRORS) as error:
            failure = error
        if self._stopping or connection.closed:
            self._end_all(connection)
            return
        if failure is not None:
            connection.failed(command, failure)
        elif search.done:
            connection.answer(command, self._answer_of(search))
        if failure is not None or search.done:
            waiting.popleft()
        if waiting:
            self._turns.append(connection)
        else:
            del self._waiting[connection]

    def closed(self, connection: Caller) -> None:
        """End the queries of a connection that has gone; one at work ends with its step."""
        if connection in self._waiting and connection in self._turns:
            self._turns.remove(connection)
            self._end_all(connection)

    def stop(self) -> None:
        """Answer all queries now, those at work after their step."""
        self._stopping = True
        while self._turns:
            self._end_all(self._turns.popleft())

    def _end_all(self, connection: Caller) -> None:
        for command, search in self._waiting.pop(connection):
            connection.answer(command, self._answer_of(search))

    def _answer_of(self, search: KeySearch) -> Answer:
        if not search.done:
            return Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark=STOPPING)
        result = self.store.index.result(search)
        header = headers.QueryMessageResponse(
            index_last_update_timestamp=result.index_timestamp,
            index_last_update_phyoffset=result.index_physical_offset,
        )
        if search.complete:
            if not result.records:
                return Answer(ResponseCode.QUERY_NOT_FOUND, header=header, remark=NOTHING)
            return Answer(header=header, body=result.records)
        remark = (
            f"{search.walk.looked} entries of the index were looked at, and no message of "
            f"{search.walk.reached_ms} or before: ask on with that as endTimestamp, or raise "
            "maxIndexEntriesOfQuery"
        )
        if not result.records:
            return Answer(ResponseCode.SYSTEM_ERROR, header=header, remark=remark)
        return Answer(header=header, body=result.records, remark=remark)
