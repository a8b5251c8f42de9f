"""The OpenAPI document names the requests that are served, and is valid where it matters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from aerobee.broker.console.openapi import SCHEMAS, document
from aerobee.broker.console.operations import OPERATIONS
from aerobee.broker.console.web import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = document()
NO_CONSOLE = cast("Any", None)


def served() -> set[tuple[str, str]]:
    return {
        (route.path_format, method.lower())
        for route in Api(NO_CONSOLE).routes
        for method in route.methods or ()
        if method != "HEAD" and route.path != "/openapi.json"
    }


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_the_document_is_valid_openapi() -> None:
    from openapi_spec_validator import validate  # Here: it takes long, in each worker.

    validate(DOCUMENT)


def test_the_document_has_the_requests_that_are_served() -> None:
    described = {
        (path, method) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert described == served()


def test_each_name_of_a_path_is_a_parameter() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for request in methods.values():
            in_path = {one["name"] for one in request["parameters"] if one["in"] == "path"}
            assert in_path == set(re.findall(r"\{(\w+)\}", path)), path


def test_operations_have_names_of_their_own_and_words() -> None:
    requests = [one for methods in DOCUMENT["paths"].values() for one in methods.values()]
    names = [request["operationId"] for request in requests]
    assert len(names) == len(set(names))
    assert set(OPERATIONS) <= set(names)
    assert all(request["summary"] for request in requests)


def test_references_lead_somewhere() -> None:
    targets = {f"#/components/schemas/{name}" for name in SCHEMAS}
    assert set(references(DOCUMENT)) <= targets


def test_schemas_have_types_of_json() -> None:
    def types(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("type"), str) and "scheme" not in value:
                yield value["type"]
            for item in value.values():
                yield from types(item)
        elif isinstance(value, list):
            for item in value:
                yield from types(item)

    known = {"object", "array", "string", "integer", "number", "boolean", "apiKey"}
    assert set(types(DOCUMENT)) <= known


def test_secrets_and_files_are_no_parameters_of_queries() -> None:
    for methods in DOCUMENT["paths"].values():
        for request in methods.values():
            names = {one["name"] for one in request["parameters"]}
            assert not names & {"secret", "secret_file", "file", "namesrv", "context"}
