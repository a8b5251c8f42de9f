"""JSON as the Java side writes it: the one reader for bodies and for the tables' files.

Beside the standard it takes what fastjson writes: bare integers as keys, objects as keys (they
become their own compact text), `{"$ref": …}` for an object that appeared before; and control
characters in strings. NaN and nesting deeper than 64 are refused; nothing is ever evaluated twice,
so time grows with the length of the document and no faster. Source: admin §1.1, semantics §0.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

import msgspec

from remoting.errors import BodyError

__all__ = ["MAX_DEPTH", "decode"]

MAX_DEPTH = 64
REFERENCE = "$ref"

Path: TypeAlias = tuple[str | int, ...]

NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
# A string that never ends is one token, too: without that, each of its quotes would be tried anew.
STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
TOKEN = re.compile(STRING + r"|[\[\]{}]", re.DOTALL)
ODD_KEY = re.compile(
    rf"(?P<string>{STRING})"
    r"|(?P<before>[{,]\s*+)(?:(?P<number>-?[0-9]+)"
    rf"|(?P<object>\{{(?:{STRING}|[^{{}}\"])*+\}}))(?=\s*+:)",
    re.DOTALL,
)
STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def decode(data: bytes | memoryview) -> Any:
    """Raises: BodyError."""
    raw = bytes(data)
    try:
        check_depth(raw)
        document = parse(raw)
        return resolved(document) if b'"$ref"' in raw else document
    except (ValueError, RecursionError) as error:
        raise BodyError(f"not a JSON document: {error}") from error


def parse(raw: bytes) -> Any:
    """Raises: ValueError."""
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        pass
    text = ODD_KEY.sub(quoted_key, raw.decode("utf-8", "replace"))
    return json.loads(text, strict=False, parse_constant=refuse_constant)


def refuse_constant(name: str) -> None:
    """Raises: ValueError."""
    raise ValueError(f"{name} is no JSON")


def quoted_key(found: re.Match[str]) -> str:
    """A key that is no string, as one. Strings stay as they are."""
    if found["string"] is not None:
        return found["string"]
    if found["number"] is not None:
        return f'{found["before"]}"{found["number"]}"'
    key = json.loads(found["object"], strict=False)
    text = json.dumps(key, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return found["before"] + json.dumps(text, ensure_ascii=False)


# -- depth -----------------------------------------------------------------------------------------


def check_depth(raw: bytes) -> None:
    """Refuse nesting beyond MAX_DEPTH before anything recurses. Raises: ValueError."""
    brackets = raw.translate(None, NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    # Too deep, or brackets within strings, or not balanced at all: look closely.
    depth = 0
    for token in TOKEN.finditer(raw.decode("utf-8", "replace")):
        first = token[0][0]
        depth += (first in "{[") - (first in "}]")
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")


# -- references ------------------------------------------------------------------------------------


def resolved(document: Any) -> Any:
    """The document with every reference replaced by what it stands for. Raises: ValueError."""
    return without_references(document, document, ())


def without_references(value: Any, root: Any, parents: tuple[Any, ...]) -> Any:
    """One value of it. `parents`: the objects around it, outermost first."""
    if isinstance(value, dict):
        if value.keys() == {REFERENCE}:
            return target(str(value[REFERENCE]), root, parents)
        inner = (*parents, value)
        return {name: without_references(item, root, inner) for name, item in value.items()}
    if isinstance(value, list):
        inner = (*parents, value)
        return [without_references(item, root, inner) for item in value]
    return value


def target(path: str, root: Any, parents: tuple[Any, ...]) -> Any:
    """What a reference stands for. One into an object around itself is refused: ValueError."""
    found = root
    steps = list(STEP.finditer(path))
    if not path.startswith("$") or "".join(step[0] for step in steps) != path[1:]:
        raise ValueError(f"reference {path[:MAX_DEPTH]!r}")
    for step in steps:
        key: Any = step[1] if step[1] is not None else int(step[2])
        try:
            found = found[key]
        except (LookupError, TypeError):
            raise ValueError(f"reference {path[:MAX_DEPTH]!r} leads nowhere") from None
    if any(found is parent for parent in parents) or contains_reference(found):
        raise ValueError(f"reference {path[:MAX_DEPTH]!r} goes round in a circle")
    return found


def contains_reference(value: Any) -> bool:
    """Whether a reference is anywhere in it."""
    if isinstance(value, dict):
        return REFERENCE in value or any(map(contains_reference, value.values()))
    return isinstance(value, list) and any(map(contains_reference, value))
