"""JSON as Java's fastjson writes it: the one decoder for bodies and for the tables' files.

Beside the standard it accepts what fastjson writes: bare integers as keys, objects as keys (they
become their own compact text), `{"$ref": …}` for an object that appeared before; and control
characters in strings. NaN and nesting deeper than 64 are refused, and the decoding time of any
document is linear in its length. Source: admin §1.1, semantics §0.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from aerobee.remoting.errors import BodyError

MAX_DEPTH = 64
MAX_BRACKETS = 1_000_000
"""Ten times what a table of 100,000 topics has; counting them takes a few milliseconds."""
MAX_REFERRED = 100_000
REFERENCE = "$ref"
REFERENCE_KEY = b'"$ref":'
"""As the key of an object in a document without spaces; within a string its quotes are escaped."""

NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
# An unterminated string is one token, too: without that, each of its quotes would be tried anew.
STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
TOKEN = re.compile(STRING + r"|[\[\]{}]", re.DOTALL)
ODD_KEY = re.compile(
    rf"(?P<string>{STRING})"
    r"|(?P<before>[{,]\s*+)(?:(?P<number>-?[0-9]+)"
    rf"|(?P<object>\{{(?:{STRING}|[^{{}}\"])*+\}}))(?=\s*+:)",
    re.DOTALL,
)
SURROGATE = re.compile(r"\\u[dD]")
STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")


def decode(data: bytes | memoryview, most_brackets: int | None = MAX_BRACKETS) -> Any:
    """Decode a document written by Java or another client. Raises: BodyError.

    A table's file may have any number of brackets: its entries were accepted one by one.
    """
    raw = bytes(data)
    try:
        check_depth(raw, most_brackets=most_brackets)
        document = parse(raw)
        return Resolver(document).resolved(document) if b'"$ref"' in raw else document
    except (ValueError, RecursionError) as error:
        raise BodyError(f"not a JSON document: {error}") from error


def parse(raw: bytes) -> Any:
    """Decode a document, leaving fastjson's references as they are. Raises: ValueError."""
    try:
        return msgspec.json.decode(raw)
    except ValueError:
        pass
    text = ODD_KEY.sub(quoted_key, raw.decode("utf-8", "replace"))
    document = json.loads(text, strict=False, parse_constant=refuse_constant)
    return well_formed(document) if SURROGATE.search(text) else document


def well_formed(value: Any) -> Any:
    """A document that UTF-8 can encode: half a surrogate pair becomes a question mark, as in
    Java.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {well_formed(name): well_formed(item) for name, item in value.items()}
    return list(map(well_formed, value)) if isinstance(value, list) else value


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity. Raises: ValueError."""
    raise ValueError(f"{name} is no JSON")


def quoted_key(match: re.Match[str]) -> str:
    """A key that is not a string, as a string. Strings stay as they are."""
    if match["string"] is not None:
        return match["string"]
    if match["number"] is not None:
        return f'{match["before"]}"{match["number"]}"'
    key = json.loads(match["object"], strict=False)
    text = json.dumps(key, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return match["before"] + json.dumps(text, ensure_ascii=False)


# ── Depth ──


def check_depth(
    raw: bytes, most: int = MAX_DEPTH, *, most_brackets: int | None = MAX_BRACKETS
) -> None:
    """Refuse nesting deeper than `most` before anything recurses. Raises: ValueError."""
    brackets = raw.translate(None, NOT_BRACKETS)
    if most_brackets is not None and len(brackets) > most_brackets:
        raise ValueError(f"{len(brackets)} brackets, at most {most_brackets} are taken")
    for _ in range(most):
        if not brackets:
            return
        before = len(brackets)
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(brackets) == before:
            break
    # Too deep, or brackets within strings, or unbalanced: check exactly.
    depth = 0
    for token in TOKEN.finditer(raw.decode("utf-8", "replace")):
        first = token[0][0]
        depth += (first in "{[") - (first in "}]")
        if depth > most:
            raise ValueError(f"nested deeper than {most}")


# ── References ──


class Resolver:
    """Replaces references by their targets, at most MAX_REFERRED values in all."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.left = MAX_REFERRED

    def resolved(self, value: Any) -> Any:
        """A value without references in it. Raises: ValueError."""
        if isinstance(value, dict):
            if value.keys() == {REFERENCE}:
                return self.target(str(value[REFERENCE]))
            return {name: self.resolved(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.resolved(item) for item in value]
        return value

    def target(self, path: str) -> Any:
        """The target of a reference; `path` is like `$.a.b[0]`. Raises: ValueError."""
        value = self.root
        steps = list(STEP.finditer(path))
        if not path.startswith("$") or "".join(step[0] for step in steps) != path[1:]:
            raise ValueError(f"reference {path[:MAX_DEPTH]!r}")
        for step in steps:
            key: Any = step[1] if step[1] is not None else int(step[2])
            try:
                value = value[key]
            except (LookupError, TypeError):
                raise ValueError(f"reference {path[:MAX_DEPTH]!r} leads nowhere") from None
        self.count(value)
        return value

    def count(self, value: Any) -> None:
        """Count a value and everything in it.

        Raises: ValueError for too many values, and for a reference in it: it may be circular.
        """
        self.left -= 1
        if self.left < 0:
            raise ValueError("references stand for too much")
        if isinstance(value, dict):
            if REFERENCE in value:
                raise ValueError("a reference to a reference")
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                self.count(item)
