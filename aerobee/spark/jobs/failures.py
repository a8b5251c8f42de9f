"""Converts failures of Spark, its JVM and the file system to errors of Aerobee, in one line.

Texts and exceptions in, errors of `aerobee.errors` out, so that a job ends with the same exit code
as any other command.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee import errors
from aerobee.errors import AerobeeError, BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

RAISED = re.compile(r"^\s*aerobee\.errors\.(\w+): (.+)$", re.MULTILINE)
RAISED_BY_OTHERS = re.compile(
    r"^(?!org\.|java\.|py4j\.)([\w.]+(?:Error|Exception): .+)$", re.MULTILINE
)
"""The last line of a Python traceback, in a text that has Java's stack traces, too."""
CALLED = "An error occurred while calling"
"""The first words of Py4J for an exception of Java; the line names nothing that users know."""
RAISED_BY_JAVA = re.compile(r"^(?:: |Caused by: )(?:[\w$]+\.)*([\w$]+: .+)$", re.MULTILINE)
"""An exception of Java and each of its causes."""
FORBIDDEN = re.compile(r"PermissionError|AccessDenied|AccessControlException|Permission denied")
NO_PERMISSION = 16
CODES = {kind: code for code, kind in reversed(errors.BY_CODE.items()) if code != NO_PERMISSION}
CODES[errors.AccessDeniedError] = NO_PERMISSION
"""The exit code tells access control from what is allowed to nobody."""
LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's loggers that print the stack trace of an exception which is raised right after."""


@contextmanager
def plainly() -> Iterator[None]:
    """Raise errors of Spark and the file system as AerobeeError, in a line without stack traces."""
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
    """The Aerobee error in a text of Spark, else the innermost cause, else its first line."""
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
    """The first failure, of Python or of Java, else the first line."""
    first = text.strip().partition("\n")[0] or "Spark failed and said nothing"
    causes = RAISED_BY_OTHERS.findall(text) if "Traceback" in text else []
    if not causes and first.startswith(CALLED):
        causes = RAISED_BY_JAVA.findall(text)
    return str(causes[-1]) if causes else first


def with_code(text: str) -> AerobeeError:
    """An error with this text; for a forbidden access with its code, and with what to do."""
    if not FORBIDDEN.search(text):
        return AerobeeError(text)
    error = AerobeeError(f"{text}: run the job as a user who may")
    error.code = NO_PERMISSION
    return error


def _takes_a_text(kind: type[AerobeeError]) -> bool:
    """Whether the constructor of an error takes its text only."""
    return kind.__init__ is Exception.__init__ or "__init__" not in vars(kind)
