"""Converts errors to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ConfigurationError,
    ConnectError,
    GroupNotFoundError,
    NoNameServerError,
    PermissionDeniedError,
    TransportError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "DONE",
    "FAILED",
    "NOT_REACHABLE",
    "REFUSED",
    "STORE_REFUSED",
    "WRONG_USAGE",
    "complain",
    "drop_output",
    "exit_code_of",
]

DONE, FAILED, WRONG_USAGE, STORE_REFUSED, NOT_REACHABLE, REFUSED = range(6)
EXIT_CODES: tuple[tuple[type[AerobeeError], int], ...] = (
    (GroupNotFoundError, FAILED),
    (ConfigurationError, WRONG_USAGE),
    (PermissionDeniedError, REFUSED),
    (TransportError, NOT_REACHABLE),
    (NoNameServerError, NOT_REACHABLE),
    (BrokerNotFoundError, NOT_REACHABLE),
)
"""The first matching class applies; other errors mean "failed"."""
CLIENT_CODES = {10001: NOT_REACHABLE, 10002: NOT_REACHABLE, 10003: NOT_REACHABLE, 16: REFUSED}
"""For errors that only carry the code of the last failure."""
NO_MATTER_OF_RIGHTS = re.compile(
    r"is existed|is not exist|can ?not be (blank|Any)|is null|is empty|is invalid|null or illegal"
)
"""What brokers, Java's as well, say with NO_PERMISSION of users and ACLs that are there already,
are not there, or are wrong."""
UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG}
"""What a write to stdout fails with; any other error of the system is a fault of ours."""
START_HINT = "start one with `aerobee broker run`, or name it with --namesrv"
TLS_HINT = "if it takes TLS only, set AEROBEE_CA_FILE, or use a context with --ca-file"


def exit_code_of(run: Callable[[list[str] | None], Any], arguments: list[str] | None) -> int:
    """Run a command line; its errors become a line and a code.

    SIGTERM ends it as Ctrl-C does, so that commands can unregister from the broker.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return WRONG_USAGE if isinstance(error, click.UsageError) else FAILED
    except (KeyboardInterrupt, click.Abort):
        return FAILED
    except AerobeeError as error:
        complain(explained(error))
        return code_of(error)
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        drop_output()
        complain(f"the output cannot be written: {error.strerror}")
        return FAILED
    return result if isinstance(result, int) else DONE


def drop_output() -> None:
    """Drop what is still buffered for stdout: the interpreter would try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """Print one line on stderr, also for a remark of a broker with line breaks."""
    click.echo(f"aerobee: {' '.join(text.splitlines())}", err=True)


def explained(error: AerobeeError) -> str:
    """The error's text, with advice if there is any."""
    text = str(error)
    if not isinstance(error, NoNameServerError | ConnectError) or " TLS: " in text:
        return text
    return f"{text}; {TLS_HINT if 'reset by peer' in text else START_HINT}"


def code_of(error: AerobeeError) -> int:
    """The exit code of an SDK error."""
    if isinstance(error, PermissionDeniedError) and NO_MATTER_OF_RIGHTS.search(error.remark):
        return FAILED
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    return CLIENT_CODES.get(error.code or 0, FAILED)
