"""structlog, set up once: one event per line on stderr, nothing anywhere else.

Each event has a limit of lines per period; the next line after that says how many were left out. So
clients can neither fill the disk nor keep the loop busy with log lines. JSON when stderr is not a
terminal. Lines for journald begin with their level and have no time, which it adds. Values from
peers cannot forge a line or move the cursor: control characters are escaped, values are truncated,
secrets never appear.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from aerobee.broker.process.log_stream import LineStream
from aerobee.remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from structlog.typing import Processor

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""Names of levels → numbers of the standard library."""
PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Names of levels → those of syslog, which journald reads at the begin of a line."""

MAX_VALUE_CHARS = 256
MAX_REFUSAL_CHARS = 2_048
"""The reason of a refused start ends with the remedy, after paths of any length."""
MAX_CHANGES_CHARS = 2_048
"""The longest text about the changes of an administrator's request."""
MAX_TRACEBACK_CHARS = 32_768
LONG_KEYS: Final = frozenset({"exception", "stack"})
"""Their values have several lines."""
REDACTED = "***"
LINES: Final = 100
"""Lines of one event in `PERIOD_S`, at levels above debug."""
LINES_OF: Final = {
    "admin.changed": 10_000,
    "access.refused": 20,
    "client.expired": 20,
    "group.changed": 20,
    "loop.stalled": 5,
    "request.failed": 5,
    "run.failed": 5,
    "topic.created": 20,
}
"""More for the audit log, less for what clients cause by thousands or with long lines."""
LIBRARY_LINES: Final = 5
"""For one logger of a library."""
PERIOD_S: Final = 10.0
EVENTS_MAX: Final = 1_000
"""Events that are counted; the names of ours are literals, those of libraries are not."""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
CONTROL_BUT_NEWLINE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
SECRET_WORD = r"(?:secret_?key|signature|password|passwd|credentials?|security_?token)"
SECRET_KEY = re.compile(SECRET_WORD, re.IGNORECASE)
SECRET_IN_TEXT = re.compile(rf"({SECRET_WORD}\W{{1,4}})[^\s,;&}}\]\"'\x00-\x1f]+", re.IGNORECASE)

log = structlog.stdlib.get_logger(__name__)


def configure(
    level: str = "info",
    *,
    stream: TextIO | LineStream | None = None,
    as_json: bool | None = None,
    journal: bool = False,
    broker: str | None = None,
) -> None:
    """Set up logging for the process; loggers made before obey as well.

    `level`: a name of `LEVELS`. `stream`: stderr unless given. `as_json`: unless given, whether the
    stream is not a terminal. `journal`: journald reads it. `broker`: the name that each line gets,
    where several brokers write one log. Raises: KeyError for an unknown level.
    """
    target = cast("TextIO", stream if stream is not None else sys.stderr)
    before = [dropped_first(stream)] if isinstance(stream, LineStream) else []
    json_lines = as_json if as_json is not None else not target.isatty()
    render = json_renderer() if json_lines else console_renderer(target)
    processors: list[Processor] = PROCESSORS if journal else [TIME, *PROCESSORS]
    if broker is not None:
        processors = [named(broker), *processors]
    if journal:
        render = with_priority(render)
    structlog.configure(
        processors=[LineLimits(), *before, *processors, render],
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    adopt_standard_library(target, processors, render)
    set_level(level)


def set_level(level: str) -> None:
    """Write lines of this level and above from now on. Raises: KeyError for an unknown level."""
    number = LEVELS[level]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))
    logging.getLogger().setLevel(max(number, logging.WARNING))


def named(broker: str) -> Processor:
    """Puts the name of this broker into each event."""

    def name(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["broker_name"] = broker
        return event

    return name


def is_journal(descriptor: int, environ: Mapping[str, str]) -> bool:
    """Whether journald reads what is written to the descriptor. Source: systemd.exec(5)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def with_priority(render: Processor) -> Processor:
    """Lines that begin with their level, as journald reads it. Source: sd-daemon(3)."""

    def rendered(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        priority = PRIORITIES.get(str(event.get("level")), PRIORITIES["info"])
        return f"<{priority}>{render(logger, method, event)!s}"

    return rendered


def dropped_first(stream: LineStream) -> Processor:
    """Before the first line after dropped ones: how many were dropped."""

    def say(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        lines = stream.take_dropped()
        if lines:
            log.warning("log.dropped", lines=lines)
        return event

    return say


def json_renderer() -> Processor:
    """One JSON object per line; non-ASCII characters are escaped."""
    return structlog.processors.JSONRenderer(ensure_ascii=True)


def console_renderer(target: TextIO) -> Processor:
    """Aligned and, on a terminal, coloured lines for people."""
    colors = target.isatty() and "NO_COLOR" not in os.environ
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback
    )


class LineLimits:
    """Drops events beyond their limit, before any work is done for them."""

    def __init__(self) -> None:
        self.limits: dict[str, LogLimit] = {}

    def __call__(
        self, _: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """The event, preceded by the number of dropped ones. Raises: DropEvent beyond the limit."""
        if method == "debug":
            return event
        name = str(event.get("event"))
        limit = self.limits.get(name)
        if limit is None:
            if len(self.limits) >= EVENTS_MAX:
                self.limits.clear()
            limit = self.limits[name] = LogLimit(LINES_OF.get(name, LINES), PERIOD_S)
        left_out = limit.admit(monotonic())
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            event["left_out"] = event.get("left_out", 0) + left_out
        return event


class LibraryLimits(logging.Filter):
    """Drops records beyond the limit of their logger: those of libraries may have a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, LogLimit] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        limit = self.limits.setdefault(record.name, LogLimit(LIBRARY_LINES, PERIOD_S))
        return limit.admit(monotonic()) is not None


def harmless(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make every value safe to print; numbers, booleans and None stay as they are."""
    longest = MAX_REFUSAL_CHARS if event.get("event") == "broker.refused" else MAX_VALUE_CHARS
    for key, value in event.items():
        most = MAX_CHANGES_CHARS if key == "changes" else longest
        if key in LONG_KEYS:
            event[key] = escaped(str(value), CONTROL_BUT_NEWLINE, MAX_TRACEBACK_CHARS)
        elif SECRET_KEY.search(key):
            event[key] = REDACTED
        elif value is not None and not isinstance(value, bool | int | float):
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            event[key] = escaped(text, CONTROL, most)
    return event


def escaped(text: str, control: re.Pattern[str], max_chars: int) -> str:
    """The text without secrets and control characters, cut to `max_chars`."""
    shown = SECRET_IN_TEXT.sub(rf"\1{REDACTED}", text[: 2 * max_chars])
    shown = control.sub(lambda match: rf"\u{ord(match[0]):04x}", shown)
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"


TIME: Final[Processor] = structlog.processors.TimeStamper(fmt="iso", utc=True)
PROCESSORS: list[Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.format_exc_info,
    harmless,
]
"""The processors of every event before it is rendered, and after it has got its time."""


def adopt_standard_library(
    target: TextIO, processors: Sequence[Processor], render: Processor
) -> None:
    """Send warnings of libraries to the same stream, and nothing below a warning."""
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    handler.addFilter(LibraryLimits())
    root = logging.getLogger()
    root.handlers[:] = [handler]
