"""Converts errors to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.output import echo, escaped
from aerobee.errors import (
    AccessDeniedError,
    AerobeeError,
    BatchSendError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConnectError,
    GroupNotFoundError,
    NoNameServerError,
    RouteNotFoundError,
    SendFailedError,
    TransportError,
    UndeliveredError,
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
    (AccessDeniedError, REFUSED),
    (BrokerError, FAILED),
    (RouteNotFoundError, FAILED),
    (TransportError, NOT_REACHABLE),
    (NoNameServerError, NOT_REACHABLE),
    (BrokerNotFoundError, NOT_REACHABLE),
)
"""The first matching class applies; other errors mean "failed"."""
CLIENT_CODES = {10001: NOT_REACHABLE, 10002: NOT_REACHABLE, 10003: NOT_REACHABLE, 16: REFUSED}
"""For errors that only carry the code of a failure, as those of Spark's tasks."""
UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT, errno.EFBIG}
"""What a write to stdout fails with; any other error of the system is a fault of ours."""
SERVERS = (("broker", "run"), ("nameserver", "run"))
START_HINT = "start one with `aerobee broker run`, or name it with --namesrv"
TLS_HINT = "if it takes TLS only, set AEROBEE_CA_FILE, or use a context with --ca-file"


def exit_code_of(run: Callable[[list[str] | None], Any], arguments: list[str] | None) -> int:
    """Run a command line; its errors become a line and a code.

    SIGTERM ends it as Ctrl-C does, so that commands can unregister from the broker. A server obeys
    signals itself, and has begun nothing before: the system may end it, which systemd and our
    supervisor take for a clean stop.
    """
    words = tuple(sys.argv[1:] if arguments is None else arguments)[:2]
    if words not in SERVERS and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            error.show()
        else:
            echo(f"Error: {escaped(error.format_message())}", err=True)
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
    echo(f"aerobee: {' '.join(text.splitlines())}", err=True)


def explained(error: AerobeeError) -> str:
    """The error's text, with advice if there is any."""
    text = str(error)
    if not isinstance(error, NoNameServerError | ConnectError) or " TLS: " in text:
        return text
    return f"{text}; {TLS_HINT if 'reset by peer' in text else START_HINT}"


def reason_of(error: AerobeeError) -> AerobeeError:
    """The error of the last try of a send, the first one of several messages, or itself."""
    if isinstance(error, SendFailedError) and error.attempts:
        return error.attempts[-1].error
    if isinstance(error, BatchSendError):
        return next(one for one in error.results if isinstance(one, AerobeeError))
    if isinstance(error, UndeliveredError):
        return reason_of(error.failed[0][1])
    return error


def code_of(error: AerobeeError) -> int:
    """The exit code of an SDK error."""
    error = reason_of(error)
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    return CLIENT_CODES.get(error.code or 0, FAILED)
