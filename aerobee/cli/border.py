"""Converts errors to one line on stderr and an exit code."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.arguments import check_variables
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
"""The errors of a write to stdout."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
SERVERS = (("broker", "run"), ("nameserver", "run"))
START_HINT = "start one with `aerobee broker run`, or name it with --namesrv"
NO_ACCOUNT = "username cannot be null"
"""The words of a broker with users about a request without a signature."""
ACCOUNT_HINT = "set AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY, or use a context with --access-key"
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
        check_variables()
        result = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        if isinstance(error, click.FileError) and isinstance(error.__cause__, OSError):
            return code_of_system(error.__cause__)
        if isinstance(error, click.UsageError):
            output = io.StringIO()
            error.show(output)
            with suppress(OSError):
                echo(output.getvalue(), err=True, nl=False)
        else:
            complain(escaped(error.format_message()))
        return WRONG_USAGE if isinstance(error, click.UsageError) else FAILED
    except (KeyboardInterrupt, click.Abort):
        return FAILED
    except AerobeeError as error:
        complain(explained(error))
        return code_of(error)
    except OSError as error:
        return code_of_system(error)
    except UnicodeError:
        # Arguments and variables are checked before. A typed text may be a secret.
        complain("what was typed is no UTF-8")
        return WRONG_USAGE
    return result if isinstance(result, int) else DONE


def code_of_system(error: OSError) -> int:
    """Tell an error of the system, about a file or about stdout; returns the exit code."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        complain(f"{escaped(os.fsdecode(error.filename))}: {reason}")
        return REFUSED if error.errno in FORBIDDEN else FAILED
    if error.errno in UNWRITABLE:
        drop_output()
        reason = f"the output cannot be written: {reason}"
    complain(reason)
    return FAILED


def open_closed() -> None:
    """Open those of stdin, stdout and stderr that are closed, so that no other file is taken for
    one of them: stdin is empty then, and a write to stdout fails.

    Python leaves out in silence what is printed to a closed one, such as messages that count as
    consumed. A sign that stdout cannot show in its encoding is escaped.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            os.set_inheritable(os.open(os.devnull, flags), True)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as stdin
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Drop what is still buffered for stdout: the interpreter would try to write it again."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """Print one line on stderr, also for a remark of a broker with line breaks.

    Where nobody can read it the exit code alone says what happened.
    """
    with suppress(OSError):
        echo(f"aerobee: {' '.join(text.splitlines())}", err=True)


def explained(error: AerobeeError) -> str:
    """The error's text, with what was added to it, and advice if there is any."""
    text = noted(error)
    if isinstance(error, AccessDeniedError) and NO_ACCOUNT in text:
        return f"{text}; {ACCOUNT_HINT}"
    if not isinstance(error, NoNameServerError | ConnectError) or " TLS: " in text:
        return text
    return f"{text}; {TLS_HINT if 'reset by peer' in text else START_HINT}"


def noted(error: AerobeeError) -> str:
    """The error's text, with what was added to it."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def reason_of(error: AerobeeError) -> AerobeeError:
    """The error of the last try of a send, the first one of several messages, or itself."""
    if isinstance(error, SendFailedError) and error.attempts:
        return error.attempts[-1].error
    if isinstance(error, BatchSendError):
        return next(result for result in error.results if isinstance(result, AerobeeError))
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
