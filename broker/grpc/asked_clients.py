"""The questions of the broker to clients over their Telemetry streams, and their answers.

Source: grpc §2.3, §2.9 (the proxy's RemotingChannel and GrpcClientChannel).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from aerobee.broker.grpc.translation.received import message_of
from aerobee.broker.grpc.translation.transaction_ids import TransactionId
from aerobee.remoting.errors import CallTimedOut, ChannelClosed
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.wire.bodies.queue import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.transaction import CheckTransactionState
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read

if TYPE_CHECKING:
    from aerobee.remoting.server.caller import CallerContext
    from aerobee.remoting.wire.header import Header

QUESTIONS_MAX: Final = 64
"""Questions to one client that wait for its answer."""


class Respondent(Protocol):
    """A client with a stream."""

    @property
    def address(self) -> str:
        """Its address, with its port."""

    @property
    def context(self) -> CallerContext:
        """The state that the connections of its selector share."""

    @property
    def paused(self) -> bool:
        """Whether nothing can be sent to it now."""

    @property
    def closed(self) -> bool:
        """Whether it is forgotten."""

    def tell(self, command: Any) -> None:
        """Send it a command over its stream."""


class Questions:
    """The questions to one client, by their nonce."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, tuple[trio.Event, list[Any]]] = {}

    async def ask(self, client: Respondent, code: int, body: bytes, timeout_s: float) -> Command:
        """Ask for the stacks of its threads, or to consume a message now.

        Raises: CallTimedOut, ChannelClosed.
        """
        if client.paused:
            raise ChannelClosed(f"{client.address} has no stream")
        if len(self._waiting) >= QUESTIONS_MAX:
            raise CallTimedOut(f"{client.address} has {QUESTIONS_MAX} questions to answer")
        self._count += 1
        nonce = str(self._count)
        question = question_of(code, nonce, body)
        if question is None:
            return Command(
                code=int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
                remark=f"request {code} has no form for clients over gRPC",
            )
        done, replies = self._waiting[nonce] = (trio.Event(), [])
        client.tell(question)
        client.context.shared.flush()
        try:
            with trio.move_on_after(timeout_s):
                await done.wait()
        finally:
            del self._waiting[nonce]
        if replies:
            return answered(replies[0])
        if client.closed:
            raise ChannelClosed(f"{client.address} closed while request {code} waited")
        raise CallTimedOut(f"{client.address} did not answer request {code} in {timeout_s:g} s")

    def answer(self, command: Any) -> None:
        """Take what a client answers; an unknown nonce is dropped."""
        reply = getattr(command, command.WhichOneof("command"))
        waiting = self._waiting.get(reply.nonce)
        if waiting is not None:
            waiting[1].append(command)
            waiting[0].set()

    def end(self) -> None:
        """The client has gone."""
        for done, _ in self._waiting.values():
            done.set()


def question_of(code: int, nonce: str, body: bytes) -> Any:
    """The command for a request of administrators; None: there is none."""
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        stacks = messages.PrintThreadStackTraceCommand(nonce=nonce)
        return messages.TelemetryCommand(print_thread_stack_trace_command=stacks)
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        verify = messages.VerifyMessageCommand(nonce=nonce, message=stored_message(body))
        return messages.TelemetryCommand(verify_message_command=verify)
    return None


def answered(command: Any) -> Command:
    """The answer of a client as a remoting client would give it."""
    if command.HasField("thread_stack_trace"):
        info = ConsumerRunningInfo(jstack=command.thread_stack_trace.thread_stack_trace)
        return Command(body=info.to_bytes())
    good = command.status.code in (Code.OK, Code.CODE_UNSPECIFIED)
    result = ConsumeMessageDirectlyResult(
        consume_result="CR_SUCCESS" if good else "CR_LATER",
        remark=command.status.message or None,
        spent_time_mills=0,
    )
    return Command(body=result.to_bytes())


def stored_message(body: bytes) -> Any:
    """A record as a message without a handle."""
    record = read(body)
    topic = messages.Resource(name=record.topic)
    attempt = record.reconsume_times + 1
    return message_of(record, decode(record.properties), topic, attempt=attempt)


def recovery_of(header: Header | None, body: bytes) -> Any:
    """The command that asks for the end of a transaction."""
    assert isinstance(header, CheckTransactionState)
    half = TransactionId(
        header.commit_log_offset, header.tran_state_table_offset, header.transaction_id or ""
    )
    recover = messages.RecoverOrphanedTransactionCommand(
        message=stored_message(body), transaction_id=half.text()
    )
    return messages.TelemetryCommand(recover_orphaned_transaction_command=recover)
