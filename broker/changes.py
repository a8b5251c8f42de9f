"""The changes of a request, as text for the audit log: the old and the new value of each field.

    orders: perm 6 -> 4, readQueueNums 8 -> 16
    orders created: order false, perm 6, …

Values are JSON; those of secrets are left out, and text of any length is cut.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from aerobee.broker.config.schema import SECRET_WORD
from aerobee.remoting.wire.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Fields: TypeAlias = msgspec.Struct | Mapping[str, Any] | None

VALUE_CHARS: Final = 64
CHARS: Final = 1_024
PLAIN: Final = re.compile(r"[\w%|.:*/-]{1,255}", re.ASCII)
HIDDEN: Final = "hidden"
DEPTH: Final = 2
"""Tables within tables that have names of their own, as `groupRetryPolicy.type`."""


class ChangeAnswer(Answer, frozen=True):
    """An answer, and what the audit log says of the request: only that reads `changes`."""

    changes: str = ""


def change(name: str, before: Fields, after: Fields, *, hides: bool = True) -> str:
    """The change of one thing; None: there is none. Empty when nothing has changed.

    `hides`: whether a field may be a secret by its name; that of a right is a topic's or a group's.
    """
    if before is None and after is None:
        return ""
    old, new = dict(fields(before)), dict(fields(after))
    subject = quoted(name)
    if before is None:
        pairs = (f"{key} {shown(key, new[key], hides)}" for key in sorted(new))
        return cut(f"{subject} created: {', '.join(pairs)}", CHARS)
    if after is None:
        pairs = (f"{key} {shown(key, old[key], hides)}" for key in sorted(old))
        return cut(f"{subject} deleted: {', '.join(pairs)}", CHARS)
    pairs = (
        f"{key} {HIDDEN}"
        if hides and SECRET_WORD.search(key)
        else f"{key} {shown(key, old.get(key), hides)} -> {shown(key, new.get(key), hides)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )
    text = ", ".join(pairs)
    return cut(f"{subject}: {text}", CHARS) if text else ""


def changes_of(things: Sequence[tuple[str, Fields, Fields]]) -> str:
    """The changes of several things; those without room are counted, and not looked at."""
    changes: list[str] = []
    size = 0
    for done, (name, before, after) in enumerate(things):
        text = change(name, before, after)
        size += len(text)
        if changes and size > CHARS:
            changes.append(f"and {len(things) - done} more")
            break
        changes.append(text)
    return "; ".join(filter(None, changes))


def fields(of: Fields, path: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Names and values; those of a table have its name before them."""
    table = msgspec.to_builtins(of) if isinstance(of, msgspec.Struct) else of or {}
    for name, value in table.items():
        if isinstance(value, dict) and value and depth:
            yield from fields(value, f"{path}{quoted(name)}.", depth - 1)
        else:
            yield path + quoted(name), value


def shown(name: str, value: object, hides: bool) -> str:
    """A value of that name, as JSON; `-` for none."""
    if value is None:
        return "-"
    if hides and SECRET_WORD.search(name):
        return HIDDEN
    return cut(msgspec.json.encode(value).decode(errors="replace"), VALUE_CHARS)


def quoted(name: str) -> str:
    """A name, as JSON where it could be taken for something else."""
    if not PLAIN.fullmatch(name):
        name = msgspec.json.encode(name).decode(errors="replace")
    return cut(name, VALUE_CHARS)


def cut(text: str, most: int) -> str:
    """The text, or its begin."""
    return text if len(text) <= most else text[: most - 1] + "…"
