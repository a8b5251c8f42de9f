"""The table of fields, against the descriptors of the official Python client."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.fields import MESSAGES, PACKAGE, RPCS, SERVICE
from aerobee.remoting.grpc.messages import described
from tests.kit import python_client
from tests.kit.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

PRINT_DESCRIPTORS = """
import base64
from rocketmq.grpc_protocol import definition_pb2, service_pb2
for module in (definition_pb2, service_pb2):
    print(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode())
"""


class Shape(NamedTuple):
    """One field, as two files of descriptors can be compared."""

    number: int
    label: int
    type: int
    of: str
    optional: bool
    choice: str


def shape(field: FieldDescriptorProto, message: DescriptorProto) -> Shape:
    choice = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    optional = field.proto3_optional
    return Shape(field.number, field.label, field.type, field.type_name, optional, choice)


def shapes(found: Iterable[DescriptorProto], prefix: str = "") -> dict[str, Shape]:
    """Message and field → what the field is, nested messages too."""
    fields: dict[str, Shape] = {}
    for message in found:
        name = prefix + message.name
        fields |= {f"{name}.{field.name}": shape(field, message) for field in message.field}
        fields |= shapes(message.nested_type, f"{name}.")
    return fields


def values(found: Iterable[EnumDescriptorProto], prefix: str = "") -> dict[str, int]:
    return {
        f"{prefix}{enum.name}.{value.name}": value.number for enum in found for value in enum.value
    }


def enums(file: FileDescriptorProto) -> dict[str, int]:
    inner = [values(message.enum_type, f"{message.name}.") for message in file.message_type]
    every = values(file.enum_type)
    for one in inner:
        every |= one
    return every


@pytest.fixture(scope="module")
def official() -> list[FileDescriptorProto]:
    command = [str(python_client.interpreter()), "-c", PRINT_DESCRIPTORS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [FileDescriptorProto.FromString(base64.b64decode(one)) for one in done.stdout.split()]


@pytest.mark.interop
def test_every_field_is_that_of_the_official_client(official: list[FileDescriptorProto]) -> None:
    theirs: dict[str, Shape] = {}
    for file in official:
        theirs |= shapes(file.message_type)
    assert shapes(described().message_type) == theirs


@pytest.mark.interop
def test_every_enumeration_is_that_of_the_official_client(
    official: list[FileDescriptorProto],
) -> None:
    theirs: dict[str, int] = {}
    for file in official:
        theirs |= enums(file)
    assert enums(described()) == theirs


@pytest.mark.interop
def test_every_call_is_that_of_the_official_client(official: list[FileDescriptorProto]) -> None:
    (service,) = [s for file in official for s in file.service if s.name == SERVICE]
    theirs = {
        method.name: (
            method.input_type,
            method.output_type,
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.method
    }
    ours = {
        name: (f".{PACKAGE}.{rpc.request}", f".{PACKAGE}.{rpc.answer}", rpc.requests, rpc.answers)
        for name, rpc in RPCS.items()
    }
    assert ours == theirs


def test_what_is_written_is_read_again() -> None:
    properties = messages.SystemProperties(tag="", keys=["a", "b"], queue_offset=0)
    properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    message = messages.Message(
        topic=messages.Resource(name="T"),
        user_properties={"k": "v"},
        system_properties=properties,
        body=b"body",
    )
    again = messages.Message.FromString(message.SerializeToString())
    assert again == message
    assert again.system_properties.HasField("tag")
    assert again.system_properties.HasField("queue_offset")
    assert not again.system_properties.HasField("delivery_attempt")
    assert again.system_properties.born_timestamp.ToMilliseconds() == 1_700_000_000_123


def test_of_a_choice_only_the_last_field_is_set() -> None:
    answer: Any = messages.ReceiveMessageResponse(status=messages.Status(code=20000))
    answer.message.body = b"x"
    assert answer.WhichOneof("content") == "message"


def test_fields_and_values_of_a_newer_client_pass() -> None:
    newer = messages.Status(code=20000, message="OK").SerializeToString() + b"\xf8\x07\x01"
    assert messages.Status.FromString(newer).code == 20000
    assert messages.Status(code=49999).code == 49999


def test_a_message_that_is_not_in_the_table_is_no_attribute() -> None:
    assert set(MESSAGES) <= vars(messages).keys()
    with pytest.raises(AttributeError, match="no message Telegram"):
        _ = messages.Telegram


def test_an_official_client_may_be_in_the_same_process() -> None:
    """The same full names in the common pool do not clash with ours."""
    script = """
from google.protobuf import descriptor_pool
from aerobee.remoting.grpc.messages import Status, described
pool = descriptor_pool.Default()
pool.Add(described())
assert pool.FindMessageTypeByName("apache.rocketmq.v2.Status") is not Status.DESCRIPTOR
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_the_names_of_a_broker_without_the_port_load_no_protobuf() -> None:
    script = "import sys, aerobee.broker.broker, aerobee.remoting.grpc.enums\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert not {name for name in done.stdout.split() if name.startswith("google")}
