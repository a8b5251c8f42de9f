"""The cost of a unary send over gRPC by stage, without sockets and store: where its CPU goes.

`python -m bench.grpc_stages` prints microseconds per send, the best of many short bursts, as the
machine is shared. 64 sends come together on one connection, as in `bench.grpc_port`.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

import ngh2

from aerobee.broker.grpc.producing import entry_of
from aerobee.broker.grpc.rpc import common_status
from aerobee.broker.grpc.translation.sent import Sender, header_of
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.calls import Calls, MessageReceived
from aerobee.remoting.http2.engine import Engine
from aerobee.remoting.http2.limits import Http2Limits
from aerobee.remoting.server.grpc_serving import METHODS
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.headers.send import SendMessageResponse
from bench.arguments import program
from bench.grpc_port import MARK, TOPIC, headers, prepared_send
from bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable

BURSTS: Final = 400
TOGETHER: Final = 64
BODY_MAX: Final = 4 << 20
ANSWER: Final = Answer(
    0, SendMessageResponse("7F00000100002A9F" + "0" * 16, 1, 77, MARK.decode(), "r", "true")
)


class Stages:
    """The stages of a burst, each with what the one before has left."""

    def __init__(self) -> None:
        self._client = ngh2.Connection(ngh2.Role.CLIENT)
        self._client.initiate_connection()
        self._calls = Calls(Engine(Http2Limits()), METHODS, message_bytes_max=BODY_MAX)
        self._topic = TopicConfig(topic_name=TOPIC, read_queue_nums=8, write_queue_nums=8)
        self._sender = Sender("127.0.0.1", 1_800_000_000_000, BODY_MAX)
        self._events: list[MessageReceived] = []
        self._sent: list[Any] = []
        self._headers: list[Any] = []
        self._answers: list[bytes] = []
        self._output = b""
        self._input = b""

    def ask(self) -> None:
        """Prepare the bytes of the client: this is not measured."""
        client = self._client
        if self._output:
            client.receive_data(self._output)
            client.events()
        for _ in range(TOGETHER):
            stream = client.send_request(headers("SendMessage", "bench@1"))
            client.send_data(stream, prepared_send(), end_stream=True)
        pieces = []
        while data := client.data_to_send():
            pieces.append(data)
        self._input = b"".join(pieces)

    def bytes_to_calls(self) -> None:
        """HTTP/2 and the framing of gRPC."""
        self._calls.receive(self._input, 1.0)
        self._events.clear()
        while (event := self._calls.next()) is not None:
            assert isinstance(event, MessageReceived)
            self._events.append(event)

    def calls_to_messages(self) -> None:
        """Protobuf."""
        read = messages.SendMessageRequest.FromString
        self._sent = [read(event.message).messages[0] for event in self._events]

    def messages_to_headers(self) -> None:
        """Checks and properties."""
        topic, sender = self._topic, self._sender
        self._headers = [header_of(message, TOPIC, topic, sender) for message in self._sent]

    def results_to_answers(self) -> None:
        """Protobuf."""
        self._answers = []
        for header in self._headers:
            entry = entry_of(ANSWER, header, MARK.decode())
            answer = messages.SendMessageResponse(
                status=common_status([entry.status]), entries=[entry]
            )
            self._answers.append(answer.SerializeToString())

    def answers_to_bytes(self) -> None:
        """HTTP/2 and the framing of gRPC."""
        for event, answer in zip(self._events, self._answers, strict=True):
            event.call.answer(answer)
        self._output = self._calls.output()


def clocked(stage: Callable[[], None]) -> float:
    """Microseconds per send."""
    began = time.perf_counter_ns()
    stage()
    return (time.perf_counter_ns() - began) / TOGETHER / 1_000


@program
def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.grpc_stages").parse_args()
    print(describe())
    stages = Stages()
    best: dict[str, float] = {}
    for _ in range(BURSTS):
        stages.ask()
        for stage in (
            stages.bytes_to_calls,
            stages.calls_to_messages,
            stages.messages_to_headers,
            stages.results_to_answers,
            stages.answers_to_bytes,
        ):
            name = stage.__name__.replace("_", " ")
            best[name] = min(clocked(stage), best.get(name, 1e9))
    for name, figure in best.items():
        print(f"{name:<24}{figure:>8.2f}")
    print(f"{'together':<24}{sum(best.values()):>8.2f}")


if __name__ == "__main__":
    main()
