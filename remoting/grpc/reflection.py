"""Server reflection: what a tool such as grpcurl asks about the service, and the answers.

A tool learns the calls and messages from the server, so that it needs no file of the protocol. Both
versions, v1 and v1alpha, have the same bytes. Source: gRPC's reflection.proto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from aerobee.remoting.grpc.fields import PACKAGE, SERVICE
from aerobee.remoting.grpc.messages import POOL, describe_messages, made
from aerobee.remoting.grpc.status import StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping

REFLECTION: Final = "grpc.reflection.v1"
MESSAGES: Final[Mapping[str, str]] = {
    "ServerReflectionRequest": "1 host string, 3 file_by_filename string|message_request,"
    " 4 file_containing_symbol string|message_request,"
    " 5 file_containing_extension ExtensionRequest|message_request,"
    " 6 all_extension_numbers_of_type string|message_request,"
    " 7 list_services string|message_request",
    "ExtensionRequest": "1 containing_type string, 2 extension_number int32",
    "ServerReflectionResponse": "1 valid_host string, 2 original_request ServerReflectionRequest,"
    " 4 file_descriptor_response FileDescriptorResponse|message_response,"
    " 5 all_extension_numbers_response ExtensionNumberResponse|message_response,"
    " 6 list_services_response ListServiceResponse|message_response,"
    " 7 error_response ErrorResponse|message_response",
    "FileDescriptorResponse": "1 file_descriptor_proto bytes*",
    "ExtensionNumberResponse": "1 base_type_name string, 2 extension_number int32*",
    "ListServiceResponse": "1 service ServiceResponse*",
    "ServiceResponse": "1 name string",
    "ErrorResponse": "1 error_code int32, 2 error_message string",
}


def classes() -> dict[str, Any]:
    """Name → class, of the messages above."""
    file = FileDescriptorProto(name="reflection.proto", package=REFLECTION, syntax="proto3")
    describe_messages(file, MESSAGES)
    return made(DescriptorPool(), file)


CLASSES: Final = classes()


def answer_to(message: bytes) -> bytes:
    """The answer to one question. Raises: DecodeError when the message is none."""
    request = CLASSES["ServerReflectionRequest"].FromString(message)
    answer = CLASSES["ServerReflectionResponse"](
        valid_host=request.host, original_request=request, **content(request)
    )
    written: bytes = answer.SerializeToString()
    return written


def content(request: Any) -> dict[str, Any]:
    """The part of the answer that depends on what was asked."""
    kind = request.WhichOneof("message_request")
    try:
        if kind == "list_services":
            return {"list_services_response": {"service": [{"name": f"{PACKAGE}.{SERVICE}"}]}}
        if kind == "file_by_filename":
            return of_file(POOL.FindFileByName(request.file_by_filename))
        if kind == "file_containing_symbol":
            return of_file(file_with(request.file_containing_symbol))
        if kind == "all_extension_numbers_of_type":
            name = request.all_extension_numbers_of_type
            POOL.FindMessageTypeByName(name)
            return {"all_extension_numbers_response": {"base_type_name": name}}
    except KeyError:
        pass
    return {
        "error_response": {
            "error_code": StatusCode.NOT_FOUND,
            "error_message": f"there is no such {kind}" if kind else "nothing was asked",
        }
    }


def file_with(symbol: str) -> Any:
    """The file that describes a message, an enumeration, a service or a call. Raises: KeyError."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:  # it knows no calls
        return POOL.FindMethodByName(symbol).containing_service.file


def of_file(file: Any) -> dict[str, Any]:
    """A file as an answer has it."""
    return {"file_descriptor_response": {"file_descriptor_proto": [file.serialized_pb]}}
