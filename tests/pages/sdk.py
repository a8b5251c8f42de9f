"""The reference of the SDK, printed from its signatures and docstrings.

docs/sdk/options.md has every option of every class; a page for each public module is built into
build/docs/sdk/api.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import aerobee
from aerobee.client.settings.client import ClientOptions
from aerobee.field_docs import meanings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODULES = ("aerobee", "aerobee.blocking", "aerobee.admin", "aerobee.allocation",
           "aerobee.diagnosis", "aerobee.errors", "aerobee.hooks", "aerobee.otel",
           "aerobee.testing")  # fmt: skip
SOURCE = re.compile(r"\s*Source: .*?\.(?=\s*$|\s+[A-Z])", re.DOTALL)
"""Where a fact is from: for readers of the code."""
TREE = re.compile(r"^.+\n(?:[├│└].*\n)*└.*$", re.MULTILINE)
"""A name and what hangs from it."""
MEBIBYTE = 1 << 20

# ── Options ──

CLASSES = ("Client", "AdminClient", "Producer", "TransactionProducer", "PushConsumer",
           "PullConsumer", "PopConsumer", "RetryPolicy", "Credentials", "TLSConfig")  # fmt: skip
POSITIONAL = {
    "group": "The consumer group.",
    "namesrv": "Name servers as `host:port`, several with `;` or as a list; without any those of "
    "`NAMESRV_ADDR`, then `127.0.0.1:9876`.",
    "client": "A client that several share; without it there is one of its own, and the options of "
    "`Client` may be given as well.",
    "checker": "Says how a transaction ended, when a broker asks.",
}


class Option(NamedTuple):
    """One thing that a constructor takes."""

    name: str
    hint: str
    default: str
    meaning: str


OPTIONS_HEAD = """\
# Every option of every class

Printed by `python -m tests.pages --write` from the classes; a test compares. Times are
seconds, sizes bytes. All options are keywords, but for `group` and `namesrv`. A class that makes a
client of its own takes the options of `Client` as well; one that is given a `client` does not. The
blocking classes have the same. What can never work raises `ConfigurationError` at once.

```python
from aerobee import RetryPolicy
from aerobee.blocking import Producer
from aerobee.errors import ConfigurationError

with Producer(group="shop", timeout=5.0, retry=RetryPolicy(attempts=5), request_timeout=2.0):
    pass
try:
    Producer(retries=3)
except ConfigurationError as error:
    print(error)  # unknown options: retries
```

| option | of | type | default | meaning |
|---|---|---|---|---|
"""


def options_md() -> str:
    """The text of docs/sdk/options.md: what several classes have is one line."""
    lines: dict[Option, list[str]] = {}
    for name in CLASSES:
        for option in options_of(name):
            lines.setdefault(option, []).append(f"`{name}`")
    return OPTIONS_HEAD + "".join(
        row(code(name), ", ".join(classes), code(hint), code(default), meaning)
        for (name, hint, default, meaning), classes in lines.items()
    )


def options_of(name: str) -> list[Option]:
    """What a class takes. Raises: ValueError for an option that nobody explained."""
    cls = getattr(aerobee, name)
    found = fields_of(cls) if dataclasses.is_dataclass(cls) else declared_options(cls)
    options = [Option(*one) for one in found]
    for option in options:
        if not option.meaning:
            raise ValueError(f"{name}: what is {option.name} for? Write it below its field")
    return options


def declared_options(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of what a constructor takes, its client's options apart."""
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            default = "" if parameter.default is parameter.empty else shown(parameter.default)
            meaning = POSITIONAL.get(parameter.name, "")
            yield parameter.name, hint_of(parameter), default, meaning
            continue
        declared = named(cls, hint_of(parameter))
        config = getattr(
            import_module(declared.__module__), declared.__name__.replace("Options", "Config")
        )
        filled = {name: rest for name, *rest in fields_of(config)}
        told = meanings(declared)
        for name, hint in declared.__annotations__.items():
            if cls is aerobee.Client or name not in ClientOptions.__annotations__:
                _, default, meaning = filled.get(name, ("", "None", told.get(name, "")))
                yield name, getattr(hint, "__forward_arg__", str(hint)), default, meaning


def named(cls: type, name: str) -> type:
    """The class that a module or its imports for type checkers call so."""
    for node in ast.walk(ast.parse(inspect.getsource(import_module(cls.__module__)))):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            found = getattr(import_module(node.module or ""), name)
            assert isinstance(found, type)
            return found
    raise ValueError(f"{cls.__module__} imports no {name}")


# ── Modules ──

PAGE_HEAD = """\
Printed by `python -m tests.pages --write`; a test compares. What `**options` takes stands
in docs/sdk/options.md, what the errors mean in docs/sdk/errors.md."""


def module_md(name: str) -> str:
    """The page of one module."""
    module = import_module(name)
    parts = [f"# {name}", told(module), contents(module)]
    for public in module.__all__:
        parts += entry(public, getattr(module, public), name)
    return "\n\n".join(part for part in parts if part) + "\n"


def contents(module: Any) -> str:
    """Links to all names of a page."""
    links = " · ".join(f"[`{name}`](#{name.lower()})" for name in module.__all__)
    return f"{PAGE_HEAD}\n\n{links}"


def entry(name: str, value: Any, page: str) -> Iterator[str]:
    """One public name, with its methods if it is a class."""
    home = f"[`aerobee.{name}`](aerobee.md#{name.lower()})"
    yield f"## {name}"
    if page == "aerobee.blocking" and value is getattr(aerobee, name, None):
        yield f"The same as {home}."
    elif isinstance(value, type):
        yield from class_entry(value)
    elif inspect.isfunction(value):
        yield f"`{prefix(value)}{name}{signature(value)}`"
        yield told(value)
    else:
        yield code(value if isinstance(value, str) else re.sub(r"\b[\w.]+\.(?=\w)", "", str(value)))


def class_entry(cls: type) -> Iterator[str]:
    """A class: how it is made, what it is, its fields and its methods."""
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    if issubclass(cls, Exception):
        yield f"Comes from {', '.join(map(code, bases))}."
        if "__init__" in vars(cls):
            yield code(f"{cls.__name__}{signature(cls)}")
    elif not issubclass(cls, Enum) and not issubclass(cls, (msgspec.Struct, tuple)):
        yield f"`{cls.__name__}{signature(cls)}`"
    yield told(cls)
    if cells := list(members(cls)):
        yield table("member | value" if issubclass(cls, Enum) else "field | type | default", cells)
    for name, member in methods(cls):
        call = member.fget if isinstance(member, property) else member
        shape = returned(call) if isinstance(member, property) else signature(call, method=True)
        yield f"### {cls.__name__}.{name}"
        yield f"`{prefix(call)}{name}{shape}`"
        yield told(call)


def members(cls: type) -> Iterator[tuple[str, ...]]:
    """Enum member and value, or field, type and default; then its meaning."""
    if issubclass(cls, Enum):
        told = texts_below(cls)
        for member in cls:
            yield code(member.name), code(repr(member.value)), told.get(member.name, "")
        return
    for name, hint, default, meaning in fields_of(cls):
        yield code(name), code(hint), code(default), meaning


def fields_of(cls: Any) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of the fields of a dataclass, a struct or a named tuple."""
    if dataclasses.is_dataclass(cls):
        fields = [(field.name, str(field.type), field_default(field)) for field in
                  dataclasses.fields(cls) if not field.name.startswith("_")]  # fmt: skip
    elif hasattr(cls, "_fields") or issubclass(cls, msgspec.Struct):
        known = defaults_of(cls)
        fields = [
            (name, plain(hint), shown(known[name]) if name in known else "")
            for name, hint in cls.__annotations__.items()
        ]
    else:
        return
    below = meanings(cls)
    for name, hint, default in fields:
        yield name, hint, default, below.get(name, "")


def defaults_of(cls: Any) -> dict[str, Any]:
    """The defaults of a struct or a named tuple, by field."""
    if hasattr(cls, "_fields"):
        return dict(cls._field_defaults)
    last = cls.__struct_fields__[-len(cls.__struct_defaults__) or None :]
    given = zip(last, cls.__struct_defaults__, strict=False)
    return {name: value for name, value in given if value is not msgspec.NODEFAULT}


def field_default(field: dataclasses.Field[Any]) -> str:
    """The default of a field as one would write it; empty without one."""
    if field.default_factory is not dataclasses.MISSING:
        return shown(field.default_factory())
    return "" if field.default is dataclasses.MISSING else shown(field.default)


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class and of those of ours that it comes from."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if owner.__module__.partition(".")[0] != "aerobee":
            continue
        for name, member in vars(owner).items():
            plain_member = getattr(member, "__func__", member)
            public = not name.startswith("_") and name not in seen
            if public and (inspect.isfunction(plain_member) or isinstance(member, property)):
                seen.add(name)
                yield name, plain_member


def texts_below(cls: type) -> dict[str, str]:
    """Member of an enum → the text below it."""
    [body] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    return {
        ast.unparse(node.targets[0]): " ".join(str(ast.literal_eval(text.value)).split())
        for node, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(node, ast.Assign) and isinstance(text, ast.Expr)
    }


# ── Signatures and texts ──


def signature(call: Any, *, method: bool = False) -> str:
    """Parameters and result, with types as the source has them."""
    found = inspect.signature(call)
    parameters = list(found.parameters.values())[1 if method else 0 :]
    shown_parameters, star = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown_parameters.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown_parameters.append(parameter_text(parameter))
    result = "" if isinstance(call, type) else returned(call)
    return f"({', '.join(shown_parameters)}){result}"


def parameter_text(parameter: inspect.Parameter) -> str:
    """One parameter as it is written in a definition."""
    marks = {parameter.VAR_POSITIONAL.name: "*", parameter.VAR_KEYWORD.name: "**"}
    mark = marks.get(parameter.kind.name, "")
    text = f"{mark}{parameter.name}: {hint_of(parameter)}"
    return text if parameter.default is parameter.empty else f"{text} = {shown(parameter.default)}"


def hint_of(parameter: inspect.Parameter) -> str:
    """The type of a parameter; of `**options` the class that lists them."""
    return re.sub(r"^Unpack\[(.*)\]$", r"\1", plain(parameter.annotation))


def returned(call: Any) -> str:
    """` → type` of a function's result; of a block what `as` names."""
    hint = plain(inspect.signature(call).return_annotation)
    inner = re.fullmatch(r"(?:Steps|(?:Async)?Iterator)\[(.*)\]", hint)
    if inner and hasattr(call, "__wrapped__"):
        hint = inner.group(1)
    return f" → {hint}"


def prefix(call: Any) -> str:
    """`await`, or what begins the block that it is for."""
    hint = plain(inspect.signature(call).return_annotation)
    if hasattr(call, "__wrapped__") and hint.startswith("AsyncIterator["):
        return "async with "
    if hasattr(call, "__wrapped__") and hint.startswith("Iterator["):
        return "with "
    return "await " if inspect.iscoroutinefunction(call) else ""


def plain(annotation: Any) -> str:
    """An annotation as text."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type):
        return annotation.__name__
    return str(getattr(annotation, "__forward_arg__", annotation))


def shown(value: Any) -> str:
    """A default as one would write it."""
    match value:
        case Enum():
            return str(value)
        case frozenset() if value:
            return ", ".join(map(str, sorted(value)))
        case int() if value >= MEBIBYTE and not value % MEBIBYTE:
            return f"{value // MEBIBYTE} MiB"
    kind = type(value)
    if dataclasses.is_dataclass(kind) and value == kind():
        return f"{kind.__name__}()"
    return repr(value)


def told(value: Any) -> str:
    """A docstring as Markdown; a tree keeps its lines."""
    text = SOURCE.sub("", inspect.getdoc(value) or "")
    return TREE.sub(r"```text\n\g<0>\n```", text)


def table(head: str, cells: Sequence[Sequence[str]]) -> str:
    """A table with a column of meanings, if there are any."""
    width = head.count("|") + 1 + any(line[-1] for line in cells)
    titles = [*head.split(" | "), "meaning"][:width]
    lines = [titles, ["---"] * width, *(line[:width] for line in cells)]
    return "".join(row(*line) for line in lines).rstrip()


def code(text: str) -> str:
    """As code, unless empty."""
    return f"`{text}`" if text else ""


def row(*cells: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
