"""What Spark, its JVM and the file system fail with, told as an error of ours: the cause in a line.

Texts and exceptions flow in, errors of `aerobee.errors` flow out, so that a job ends with the exit
code that any other command would end with.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee import errors
from aerobee.errors import AerobeeError, BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["plain", "plainly", "with_code"]

RAISED = re.compile(r"^\s*aerobee\.errors\.(\w+): (.+)$", re.MULTILINE)
RAISED_BY_OTHERS = re.compile(
    r"^(?!org\.|java\.|py4j\.)([\w.]+(?:Error|Exception): .+)$", re.MULTILINE
)
"""The last line of a traceback of Python, in a text with those of Java."""
CALLED = "An error occurred while calling"
"""So begins what Py4J tells of an exception of Java; it names nothing that a person knows."""
RAISED_BY_JAVA = re.compile(r"^(?:: |Caused by: )(?:[\w$]+\.)*([\w$]+: .+)$", re.MULTILINE)
"""An exception of Java and each of its causes."""
FORBIDDEN = re.compile(r"PermissionError|AccessDenied|AccessControlException|Permission denied")
NO_PERMISSION = 16
CODES = {kind: code for code, kind in reversed(errors.BY_CODE.items())}
LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's own, which print the stack trace of what is raised a moment later."""


@contextmanager
def plainly() -> Iterator[None]:
    """Errors of Spark and of the file system as ours, in a line instead of two stack traces."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    except AerobeeError:
        raise
    except (PySparkException, Py4JError) as error:
        raise plain(str(error)) from error
    except OSError as error:
        raise with_code(f"{type(error).__name__}: {error}") from error
    finally:
        for logger in loggers:
            logger.disabled = False


def plain(text: str) -> AerobeeError:
    """The error of ours that a text of Spark's quotes, else the innermost cause, else a line."""
    raised = RAISED.findall(text)
    if not raised:
        return with_code(_cause(text))
    name, words = raised[-1]
    kind: type[AerobeeError] = getattr(errors, name, AerobeeError)
    if not issubclass(kind, BrokerError):
        return kind(words) if _takes_a_text(kind) else AerobeeError(words)
    error = AerobeeError(words)
    error.code = CODES.get(kind)
    return error


def _cause(text: str) -> str:
    """What failed first, of Python or of Java, else the first line."""
    first = text.strip().partition("\n")[0] or "Spark failed and said nothing"
    found = RAISED_BY_OTHERS.findall(text) if "Traceback" in text else []
    if not found and first.startswith(CALLED):
        found = RAISED_BY_JAVA.findall(text)
    return str(found[-1]) if found else first


def with_code(text: str) -> AerobeeError:
    """An error with this text; with the code of what is forbidden, and what to do, if it is."""
    if not FORBIDDEN.search(text):
        return AerobeeError(text)
    error = AerobeeError(f"{text}: run the job as a user who may")
    error.code = NO_PERMISSION
    return error


def _takes_a_text(kind: type[AerobeeError]) -> bool:
    """Whether an error is made of its text alone."""
    return kind.__init__ is Exception.__init__ or "__init__" not in vars(kind)
