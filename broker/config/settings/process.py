"""The settings of the process: log, event loop, how it leaves. Source: configuration §2.5."""

from dataclasses import dataclass
from enum import StrEnum

from aerobee.setting import setting


class LogLevel(StrEnum):
    """The least level of a log line that is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(StrEnum):
    """The format of log lines; AUTO: TEXT on a terminal, else JSON."""

    AUTO = "AUTO"
    JSON = "JSON"
    TEXT = "TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """The log, the watch over the event loop, and how a lame duck leaves."""

    log_level: LogLevel = setting("logLevel", LogLevel.INFO, own=True, live=True)
    """The least level of log lines."""
    log_format: LogFormat = setting("logFormat", LogFormat.AUTO, own=True)
    """AUTO writes TEXT to a terminal and JSON elsewhere."""
    log_file: str = setting("logFile", "", kind="path", own=True)
    """File of the log, opened again on SIGUSR1; empty: stderr."""
    loop_stall_ms: int = setting(
        "loopStallMillis", 1_000, ge=100, le=3_600_000, unit="ms", own=True, live=True
    )
    """An event loop that stands still for longer is logged, with the place."""
    lame_duck_grace_s: int = setting(
        "lameDuckGraceSeconds", 10, ge=0, le=3_600, unit="s", own=True, live=True
    )
    """How long a lame duck (SIGUSR2) serves everybody after producers were told to leave."""
    lame_duck_spread_s: int = setting(
        "lameDuckSpreadSeconds", 120, ge=0, le=3_600, unit="s", own=True, live=True
    )
    """Over how long it closes its connections then, a second each at most."""
