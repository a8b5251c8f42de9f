"""The message classes, made by protobuf from the table of their fields.

Importing this module loads protobuf (the extra `grpc`), so only what serves the port does. The
descriptors are in a pool of their own: an official client in the same process has the same names.
Each message of `fields.MESSAGES` is an attribute of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from aerobee.remoting.grpc.enums import ENUMS
from aerobee.remoting.grpc.fields import MESSAGES, PACKAGE, RPCS, SERVICE, Field, fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
GOOGLE: Final = {"Timestamp": timestamp_pb2, "Duration": duration_pb2}
MAP: Final = "map"


def described() -> FileDescriptorProto:
    """The whole protocol as one file of proto3."""
    file = FileDescriptorProto(name="rocketmq.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in GOOGLE.values())
    describe_messages(file, MESSAGES)
    inner = {message.name: message for message in file.message_type}
    for name, enum in ENUMS.items():
        outer, _, own = name.rpartition(".")
        described = (inner[outer].enum_type if outer else file.enum_type).add(name=own)
        for member in enum:
            described.value.add(name=member.name, number=member.value)
    service = file.service.add(name=SERVICE)
    for name, rpc in RPCS.items():
        service.method.add(
            name=name,
            input_type=f".{PACKAGE}.{rpc.request}",
            output_type=f".{PACKAGE}.{rpc.answer}",
            client_streaming=rpc.requests,
            server_streaming=rpc.answers,
        )
    return file


def describe_messages(file: FileDescriptorProto, table: Mapping[str, str]) -> None:
    """Describe all messages of a table."""
    for name, fields in table.items():
        describe_message(file.message_type.add(name=name), fields_of(fields), file.package)


def describe_message(message: DescriptorProto, fields: list[Field], package: str) -> None:
    """Describe the fields of a message. Choices of one field, which give it presence, come last."""
    choices = list(dict.fromkeys(field.choice for field in fields if field.choice))
    choices += [f"_{field.name}" for field in fields if field.present]
    for choice in choices:
        message.oneof_decl.add(name=choice)
    for field in fields:
        proto = message.field.add(name=field.name, number=field.number)
        proto.label = (
            FieldDescriptorProto.LABEL_REPEATED
            if field.repeated or field.kind == MAP
            else FieldDescriptorProto.LABEL_OPTIONAL
        )
        describe_type(proto, field, message, package)
        if field.present:
            proto.proto3_optional = True
        if field.choice or field.present:
            proto.oneof_index = choices.index(field.choice or f"_{field.name}")


def describe_type(
    proto: FieldDescriptorProto, field: Field, message: DescriptorProto, package: str
) -> None:
    """Say what a field holds. A map is a repeated message of its own, with key and value."""
    kind = field.kind
    if kind in SCALARS:
        proto.type = SCALARS[kind]
    elif kind in ENUMS:
        proto.type = FieldDescriptorProto.TYPE_ENUM
        proto.type_name = f".{package}.{kind}"
    elif kind == MAP:
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for number, part in enumerate(("key", "value"), 1):
            entry.field.add(
                name=part,
                number=number,
                type=FieldDescriptorProto.TYPE_STRING,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
        proto.type = FieldDescriptorProto.TYPE_MESSAGE
        proto.type_name = f".{package}.{message.name}.{entry.name}"
    else:
        proto.type = FieldDescriptorProto.TYPE_MESSAGE
        proto.type_name = f".{'google.protobuf' if kind in GOOGLE else package}.{kind}"


def made(pool: DescriptorPool, file: FileDescriptorProto) -> dict[str, Any]:
    """Name → class, of every message of a file."""
    pool.Add(file)
    return {
        message.name: GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{message.name}"))
        for message in file.message_type
    }


POOL: Final = DescriptorPool()
for module in GOOGLE.values():
    POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
globals().update(made(POOL, described()))


def __getattr__(name: str) -> Any:
    """For type checkers the classes; at run time only a name that is not there."""
    raise AttributeError(f"there is no message {name}")
