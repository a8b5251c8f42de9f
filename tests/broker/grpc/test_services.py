"""What tools and old clients ask at the port beside MessagingService, over a real channel."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aerobee.broker.grpc.services import QUESTION_BYTES_MAX
from aerobee.remoting.grpc.fields import PACKAGE, SERVICE
from aerobee.remoting.grpc.framing import framed
from aerobee.remoting.grpc.reflection import CLASSES
from aerobee.remoting.grpc.status import StatusCode
from tests.kit.http2_client import POST, Http2Client
from tests.kit.ports import HOST, kept_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.service

PORT = kept_port()
WITHIN_S = 30.0
WINDOW_BYTES = 65_535
"""What a client takes that gives no more room."""
EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(grpcPort=PORT)


@pytest.fixture
def channel(broker: AnyBroker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"{HOST}:{PORT}") as channel:
        yield channel


def asked(channel: grpc.Channel, questions: list[Any], version: str = "v1") -> Any:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    ask = channel.stream_stream(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=CLASSES["ServerReflectionResponse"].FromString,
    )
    return ask(iter(questions), timeout=WITHIN_S)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_tool_lists_and_describes_the_service(channel: grpc.Channel, version: str) -> None:
    question = CLASSES["ServerReflectionRequest"]
    listed, described, nothing = asked(
        channel,
        [
            question(list_services=""),
            question(file_containing_symbol=f"{PACKAGE}.{SERVICE}"),
            question(file_containing_symbol="x"),
        ],
        version,
    )
    assert [one.name for one in listed.list_services_response.service] == [f"{PACKAGE}.{SERVICE}"]
    assert len(described.file_descriptor_response.file_descriptor_proto) == 1
    assert nothing.WhichOneof("message_response") == "error_response"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\xff\xff", "no ServerReflectionRequest"),
        (bytes(QUESTION_BYTES_MAX + 1), f"{QUESTION_BYTES_MAX} are taken"),
    ],
)
def test_a_bad_question_ends_the_stream(channel: grpc.Channel, message: bytes, says: str) -> None:
    ask = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as failed:
        list(ask(iter([message]), timeout=WITHIN_S))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert says in str(failed.value.details())


def test_who_asks_on_and_reads_nothing_is_not_waited_for(broker: AnyBroker) -> None:
    """Its answers would need 16 MB of the broker."""
    question = CLASSES["ServerReflectionRequest"](file_containing_symbol=f"{PACKAGE}.{SERVICE}")
    path = (":path", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with socket.create_connection((HOST, PORT), timeout=WITHIN_S) as sock:

        def exchange(data: bytes) -> bytes:
            sock.sendall(data)
            return sock.recv(65_536)

        client = Http2Client(exchange, pump=False)
        client.reads = False
        headers = [path if name == ":path" else (name, value) for name, value in POST]
        stream = client.request(framed(question.SerializeToString()) * 1_000, headers=headers)
        while len(client.answer(stream).body) < WINDOW_BYTES:
            client.step()
        client.connection.acknowledge_received_data(WINDOW_BYTES, stream)
        client.reads = True
        while not client.answer(stream).over:
            client.step()
        assert client.answer(stream).trailers["grpc-status"] == str(
            int(StatusCode.RESOURCE_EXHAUSTED)
        )


def test_metrics_of_clients_are_taken(channel: grpc.Channel) -> None:
    export = channel.unary_unary(EXPORT)
    assert export(b"anything", timeout=WITHIN_S) == b""
