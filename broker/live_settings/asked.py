"""What a request to change settings asks for, and why it may not have it.

An allow-list: what is not declared `live` is refused, and one bad key refuses the whole request.
RocketMQ lists what may not be changed instead, which let a request run a command (CVE-2023-33246)
and write any file (CVE-2023-37582). Source: configuration §4.2, reliability S1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.config.files.entries import ConfigurationError, Form, join_tree
from aerobee.broker.config.files.foreign import known_name
from aerobee.broker.config.files.properties_file import read_properties
from aerobee.broker.config.layers import take
from aerobee.broker.config.schema import KNOWN, SCHEMA, canon, nearest
from aerobee.broker.errors import Refused
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.config.files.entries import Entry
    from aerobee.broker.config.layers import Setting

__all__ = ["BODY_BYTES_MAX", "NAMESRV", "settings_asked"]

BODY_BYTES_MAX: Final = 16_384
"""All settings that may be changed, each with its longest value, are half of this."""
NAMESRV: Final = "namesrv"
"""The part of the settings that a request to the name server may change."""
SHOWN_PROBLEMS: Final = 5
VALUE_CHARS_MAX: Final = 128
"""The longest value of such a setting names all hours of a day."""
NAME_CHARS_MAX: Final = 80
PROBLEM_CHARS_MAX: Final = 240
INVALID, FORBIDDEN = ResponseCode.INVALID_PARAMETER, ResponseCode.NO_PERMISSION


def settings_asked(body: bytes, *, part: str = "") -> Mapping[str, Setting]:
    """The settings that the body, lines of `key=value`, asks for, by canonical name.

    `part`: only settings of this one may be changed; empty: of any. Raises: Refused.
    """
    if len(body) > BODY_BYTES_MAX:
        raise Refused(INVALID, f"a body of {len(body)} bytes; at most {BODY_BYTES_MAX} are read")
    try:
        entries = read_properties(body, "line")
    except ConfigurationError as error:
        raise Refused(INVALID, told(error.problems)) from None
    forbidden = [entry for entry in entries if not is_allowed(entry.name, part)]
    if forbidden:
        first = [shortened(entry) for entry in forbidden[:SHOWN_PROBLEMS]]
        problems = [f"{entry.where}: {why_not(entry, part)}" for entry in first]
        raise Refused(FORBIDDEN, told(problems, len(forbidden)))
    long = [
        f"{entry.where}: a value of {len(join_tree(entry.value))} characters"
        for entry in entries
        if len(join_tree(entry.value)) > VALUE_CHARS_MAX
    ]
    if long:
        raise Refused(INVALID, told(long))
    layer = take([entry._replace(form=Form.TEXT) for entry in entries])
    if layer.problems:
        raise Refused(INVALID, told(layer.problems))
    if not layer.settings:
        raise Refused(INVALID, "no setting to change: the body is lines of key=value")
    return layer.settings


def shortened(entry: Entry) -> Entry:
    """The entry under the beginning of its name, if that is a long one."""
    return entry._replace(name=entry.name[:NAME_CHARS_MAX])


def is_allowed(name: str, part: str) -> bool:
    """Whether a setting may be changed by such a request."""
    key = SCHEMA.get(canon(name))
    return key is not None and key.declaration.live and (not part or key.part == part)


def why_not(entry: Entry, part: str) -> str:
    """What is the matter with a key that may not be changed."""
    key = SCHEMA.get(canon(entry.name))
    if key is not None and key.declaration.live:
        return f"no setting of the {part}; change it at the broker"
    if key is not None:
        return "can not change while running; change it in the file and restart"
    if known_name(entry.name):
        return "has no effect here, and can not change while running"
    near = nearest(entry.name)
    found = SCHEMA.get(canon(near))
    proper = found.name if found else KNOWN.get(canon(near), "")
    return f"no such setting{proper and f'; did you mean {proper}?'}"


def told(problems: Sequence[str], count: int = 0) -> str:
    """The first problems in one line that is safe to print; `count`: how many there are."""
    shown = [printable(problem) for problem in problems[:SHOWN_PROBLEMS]]
    more = max(count, len(problems)) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """The text without what a terminal would obey, and not longer than a line."""
    cut = text if len(text) <= PROBLEM_CHARS_MAX else f"{text[:PROBLEM_CHARS_MAX]}…"
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in cut
    )
