"""The OpenAPI document of the console, built from the table of operations and their commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from aerobee.broker.console.commands import command_of, parameters_of
from aerobee.broker.console.lists import FILTER_MAX, LIMIT, LIMIT_MAX, OFFSET_MAX
from aerobee.broker.console.operations import GET, LISTS, OBJECTS, OPERATIONS, SECRETS
from aerobee.broker.console.requests import COOKIE

if TYPE_CHECKING:
    from aerobee.broker.console.commands import Parameter
    from aerobee.broker.console.operations import Operation

PREFIX: Final = "/api/v1"
IN_PATH: Final = re.compile(r"\{(\w+)\}")
STATUSES: Final = {
    "400": "Wrong usage; the text says what.",
    "401": "No session, and no name and secret.",
    "403": "The viewer has no right to it.",
    "404": "There is no such topic, group or message.",
    "409": "The broker refused it.",
    "429": "Too many wrong secrets.",
    "503": "The cluster was not reached.",
    "default": "Any other failure: the text says what.",
}
QUERY: Final[list[dict[str, Any]]] = [
    {
        "name": "filter",
        "in": "query",
        "description": "Only rows with this text.",
        "schema": {"type": "string", "maxLength": FILTER_MAX},
    },
    {
        "name": "sort",
        "in": "query",
        "description": "A column; with - in front the largest is the first.",
        "schema": {"type": "string"},
    },
    {
        "name": "offset",
        "in": "query",
        "description": "The first row.",
        "schema": {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX, "default": 0},
    },
    {
        "name": "limit",
        "in": "query",
        "description": "The most rows.",
        "schema": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT},
    },
]


def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for name, text in LISTS.items():
        paths[f"/{name}"] = {"get": described(f"list.{name}", text, QUERY, "Rows")}
    for name, text in OBJECTS.items():
        paths[f"/{name}"] = {"get": described(name, text, [], "Value")}
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.method.lower()] = request_of(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The console of Aerobee",
            "version": "1",
            "description": "The commands of Aerobee over HTTP: what each prints as JSON.",
        },
        "servers": [{"url": PREFIX}],
        "security": [{"basic": []}, {"session": []}],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {"schemas": SCHEMAS, "securitySchemes": SCHEMES},
    }


def request_of(operation: Operation) -> dict[str, Any]:
    """One operation."""
    in_path = IN_PATH.findall(operation.path)
    command = command_of(operation)
    text = " ".join((command.help or "").split("\n\n")[0].split())
    parameters = [parameter_of(operation, name) for name in in_path]
    known = parameters_of(operation)
    others = [parameter for name, parameter in known.items() if name not in in_path]
    if operation.method == GET:
        parameters += [
            {
                "name": parameter.name,
                "in": "query",
                "required": is_required(parameter),
                "description": help_of(parameter),
                "schema": schema_of(parameter),
            }
            for parameter in others
        ]
        return described(operation.name, text, parameters, "Outcome")
    answer = described(operation.name, text, parameters, "Outcome")
    answer["responses"]["428"] = {
        "description": "The consequence in words; nothing is done without confirm.",
        "content": content("Asks"),
    }
    properties = {parameter.name: schema_of(parameter) for parameter in others}
    if operation.name in SECRETS:
        properties["secret"] = {"type": "string", "maxLength": 256}
    properties["confirm"] = {"type": "boolean", "default": False}
    required = [parameter.name for parameter in others if is_required(parameter)]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    answer["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": schema}},
    }
    return answer


def described(
    name: str, text: str, parameters: list[dict[str, Any]], answer: str
) -> dict[str, Any]:
    """An operation with its answers."""
    responses = {
        status: {"description": meaning, "content": content("Failure")}
        for status, meaning in STATUSES.items()
    }
    ok = {"description": "Done.", "content": content(answer)}
    return {
        "operationId": name,
        "summary": text,
        "parameters": parameters,
        "responses": {"200": ok, **responses},
    }


def content(schema: str) -> dict[str, Any]:
    """The content of an answer."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def parameter_of(operation: Operation, name: str) -> dict[str, Any]:
    """A parameter in the path."""
    parameter = parameters_of(operation)[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": help_of(parameter),
        "schema": schema_of(parameter),
    }


def is_required(parameter: Parameter) -> bool:
    """Whether a call must have it."""
    return parameter.param.required


def help_of(parameter: Parameter) -> str:
    """The help of the parameter."""
    if isinstance(parameter.param, click.Option):
        return parameter.param.help or ""
    return ""


def schema_of(parameter: Parameter) -> dict[str, Any]:
    """The schema of its values."""
    if parameter.is_flag:
        return {"type": "boolean"}
    schema = schema_of_type(parameter)
    return {"type": "array", "items": schema} if parameter.is_list else schema


def schema_of_type(parameter: Parameter) -> dict[str, Any]:
    """The schema of one value."""
    kind = parameter.param.type
    if isinstance(kind, click.Choice):
        return {"type": "string", "enum": [str(choice) for choice in kind.choices]}
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        schema: dict[str, Any] = {
            "type": "integer" if isinstance(kind, click.IntRange) else "number"
        }
        if kind.min is not None:
            schema["exclusiveMinimum" if kind.min_open else "minimum"] = kind.min
        if kind.max is not None:
            schema["maximum"] = min(parameter.most or kind.max, kind.max)
        return schema
    return {"type": "string"}


TEXTS: Final = {"type": "array", "items": {"type": "string"}}
SCHEMAS: Final[dict[str, Any]] = {
    "Outcome": {
        "type": "object",
        "description": "value is what the command prints with --json, notes what it says beside.",
        "required": ["value", "notes", "complete"],
        "properties": {"value": {}, "notes": TEXTS, "complete": {"type": "boolean"}},
    },
    "Asks": {
        "type": "object",
        "required": ["asks"],
        "properties": {"asks": {"type": "string"}, "value": {}, "notes": TEXTS},
    },
    "Rows": {
        "type": "object",
        "required": ["value", "total", "at_ms"],
        "properties": {
            "value": {"type": "array", "items": {"type": "object"}},
            "total": {"type": "integer"},
            "at_ms": {"type": "integer", "description": "When it was so, by the broker's clock."},
        },
    },
    "Value": {
        "type": "object",
        "required": ["value", "at_ms"],
        "properties": {"value": {"type": "object"}, "at_ms": {"type": "integer"}},
    },
    "Failure": {
        "type": "object",
        "required": ["error", "text"],
        "properties": {"error": {"type": "string"}, "text": {"type": "string"}},
    },
}
SCHEMES: Final = {
    "basic": {"type": "http", "scheme": "basic"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE.format(port=8_088),
        "description": "From the login page; the name ends in the port of the console.",
    },
}
