"""Server reflection: what a tool such as grpcurl asks about the service, and the answers."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from aerobee.remoting.grpc.fields import MESSAGES, PACKAGE, RPCS, SERVICE
from aerobee.remoting.grpc.reflection import CLASSES, answer_to


def asked(**question: Any) -> Any:
    request = CLASSES["ServerReflectionRequest"](host="here", **question)
    answer = CLASSES["ServerReflectionResponse"].FromString(answer_to(request.SerializeToString()))
    assert answer.original_request == request
    assert answer.valid_host == "here"
    return answer


def files_of(answer: Any) -> list[FileDescriptorProto]:
    files = answer.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(one) for one in files]


def test_the_service_is_listed() -> None:
    answer = asked(list_services="*")
    assert [one.name for one in answer.list_services_response.service] == [f"{PACKAGE}.{SERVICE}"]


@pytest.mark.parametrize(
    "symbol",
    [
        f"{PACKAGE}.{SERVICE}",
        f"{PACKAGE}.{SERVICE}.SendMessage",
        f"{PACKAGE}.Message",
        f"{PACKAGE}.Code",
        f"{PACKAGE}.Message.UserPropertiesEntry",
    ],
)
def test_a_tool_gets_the_whole_protocol_by_any_name_in_it(symbol: str) -> None:
    """It puts the files together as it gets them, asking for each that one depends on."""
    (file,) = files_of(asked(file_containing_symbol=symbol))
    pool = DescriptorPool()
    for name in file.dependency:
        (dependency,) = files_of(asked(file_by_filename=name))
        pool.Add(dependency)
    pool.Add(file)
    service = pool.FindServiceByName(f"{PACKAGE}.{SERVICE}")
    assert {method.name for method in service.methods} == set(RPCS)
    assert all(pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES)


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "nothing.proto"},
        {"file_containing_symbol": "no.Symbol"},
        {"file_containing_symbol": ""},
        {"file_containing_symbol": "."},
        {"file_containing_extension": {"containing_type": f"{PACKAGE}.Message"}},
        {"all_extension_numbers_of_type": "no.Type"},
        {},
    ],
)
def test_what_there_is_not_is_said(question: dict[str, Any]) -> None:
    answer = asked(**question)
    assert answer.error_response.error_code == 5
    assert answer.error_response.error_message


def test_a_message_has_no_extensions() -> None:
    answer = asked(all_extension_numbers_of_type=f"{PACKAGE}.Message")
    said = answer.all_extension_numbers_response
    assert (said.base_type_name, list(said.extension_number)) == (f"{PACKAGE}.Message", [])


def test_a_question_that_is_none() -> None:
    with pytest.raises(DecodeError):
        answer_to(b"\xff\xff")
