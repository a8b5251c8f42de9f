"""Parses and checks a request to change settings.

This is an allow-list: keys not declared `live` are refused, and one bad key refuses the whole
request. RocketMQ has a deny-list instead, with which a request could run a command (CVE-2023-33246)
and write any file (CVE-2023-37582). Source: configuration §4.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.config.files.entries import ConfigurationError, Form, join_tree
from aerobee.broker.config.files.foreign import known_name
from aerobee.broker.config.files.properties_file import read_properties
from aerobee.broker.config.layers import take
from aerobee.broker.config.schema import KNOWN, SCHEMA, canon, nearest
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.config.files.entries import Entry
    from aerobee.broker.config.layers import Setting

BODY_BYTES_MAX: Final = 16_384
"""The limit of a request body: twice all live settings, each with its longest value."""
NAMESRV: Final = "namesrv"
"""The part of the settings that a request to the name server may change."""
SHOWN_PROBLEMS: Final = 5
VALUE_CHARS_MAX: Final = 128
"""The longest value of a live setting; the longest real one lists all hours of a day."""
NAME_CHARS_MAX: Final = 80
PROBLEM_CHARS_MAX: Final = 240
INVALID, FORBIDDEN = ResponseCode.INVALID_PARAMETER, ResponseCode.NO_PERMISSION


def settings_asked(body: bytes, *, part: str) -> Mapping[str, Setting]:
    """The settings in the body, lines of `key=value`, by canonical name.

    `part`: only settings of this part may be changed; empty: of any part. Raises: Refusal.
    """
    if len(body) > BODY_BYTES_MAX:
        raise Refusal(INVALID, f"a body of {len(body)} bytes; at most {BODY_BYTES_MAX} are read")
    try:
        entries = read_properties(body, "line")
    except ConfigurationError as error:
        raise Refusal(INVALID, told(error.problems)) from None
    forbidden = [entry for entry in entries if not is_allowed(entry.name, part)]
    if forbidden:
        first = [shortened(entry) for entry in forbidden[:SHOWN_PROBLEMS]]
        problems = [f"{entry.where}: {why_not(entry, part)}" for entry in first]
        raise Refusal(FORBIDDEN, told(problems, len(forbidden)))
    long = [
        f"{entry.where}: a value of {len(join_tree(entry.value))} characters"
        for entry in entries
        if len(join_tree(entry.value)) > VALUE_CHARS_MAX
    ]
    if long:
        raise Refusal(INVALID, told(long))
    layer = take([entry._replace(form=Form.TEXT) for entry in entries])
    if layer.problems:
        raise Refusal(INVALID, told(layer.problems))
    if not layer.settings:
        raise Refusal(INVALID, "no setting to change: the body is lines of key=value")
    return layer.settings


def shortened(entry: Entry) -> Entry:
    """The entry with its name cut to a readable length."""
    return entry._replace(name=entry.name[:NAME_CHARS_MAX])


def is_allowed(name: str, part: str) -> bool:
    """Whether a request may change this setting."""
    key = SCHEMA.get(canon(name))
    return key is not None and key.declaration.live and (not part or key.part == part)


def why_not(entry: Entry, part: str) -> str:
    """The reason why a key may not be changed."""
    key = SCHEMA.get(canon(entry.name))
    if key is not None and key.declaration.live:
        return f"no setting of the {part}; change it at the broker"
    if key is not None:
        return "can not change while running; change it in the file and restart"
    if known_name(entry.name):
        return "has no effect here, and can not change while running"
    near = nearest(entry.name)
    known = SCHEMA.get(canon(near))
    proper = known.name if known else KNOWN.get(canon(near), "")
    return f"no such setting{proper and f'; did you mean {proper}?'}"


def told(problems: Sequence[str], count: int = 0) -> str:
    """The first problems in one line that is safe to print; `count`: how many there are."""
    shown = [printable(problem) for problem in problems[:SHOWN_PROBLEMS]]
    more = max(count, len(problems)) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """The text without terminal control characters, cut to one line."""
    cut = text if len(text) <= PROBLEM_CHARS_MAX else f"{text[:PROBLEM_CHARS_MAX]}…"
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in cut
    )
