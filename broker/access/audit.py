"""The audit log: one line for each request of an administrator that changes something.

It says who asked, from where, for what, how it ended, and what has changed: `changes` has the old
and the new values, as handlers give them. Of bodies it says names, never values, so no secret comes
into it. With `adminAccessLog` the requests that only read have a line, too. Requests that the gate
refuses have lines of another name, so that nobody without rights can use up the lines of the
others. It is there without access control as well; then nobody knows who asked.
Source: semantics §18.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import structlog

from aerobee.broker.access.permissions import PERMISSIONS
from aerobee.broker.answers import refusal
from aerobee.broker.changes import ChangeAnswer
from aerobee.remoting.errors import BodyError, HeaderError, RequestPostponed
from aerobee.remoting.server.routes import HELD, PendingAnswer, Route, is_steps
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.request_signature import ACCESS_KEY, BOUND, SECURITY_TOKEN, SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.guard import Gate, Verdict
    from aerobee.remoting.server.routes import Handler, Later, Outcome, Plain, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.AEROBEE_CLOSE_CLIENT,
        RequestCode.AEROBEE_PROMOTE,
        RequestCode.AEROBEE_SWITCH,
        RequestCode.AEROBEE_FOLLOW,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""The requests of administrators that change something."""
CHANGE_WITH: Final = {int(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN): "readable"}
"""Requests among them that only ask, unless they have this field."""
OF_CLIENTS: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.REGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
    }
)
"""Requests of the admin pool that clients and brokers send all the time: no line would be found
among theirs. Requests of `CHANGES` have one nevertheless.
"""
SETTINGS: Final = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
POOL: Final = "admin"
NOT_SAID: Final = frozenset({ACCESS_KEY, BOUND, SECURITY_TOKEN, SIGNATURE})
VALUE_CHARS: Final = 64
NEWEST: Final = 500
"""Lines that are kept for the console."""
NEWEST_REFUSED: Final = 100
"""Lines of refused requests that are kept: nobody without rights pushes out what others did."""
NAMES_MAX: Final = 8
BODY_BYTES: Final = 1_024
LINE: Final = ("request", "user", "address", "what", "result", "reason")
RESULTS: Final = {int(code): code.name for code in ResponseCode}

log = structlog.stdlib.get_logger(__name__)


class AuditedRequest(NamedTuple):
    """The fields of a line about a request."""

    request: str
    user: str
    address: str
    what: str
    """Names and values of its header, and names in its body."""
    changes: bool


class Audit:
    """Follows requests to their end. `every`: whether requests that only read have a line as
    well.
    """

    def __init__(self, *, every: Callable[[], bool], now_ms: Callable[[], int] = lambda: 0) -> None:
        self._every = every
        self._now_ms = now_ms
        self.newest: deque[dict[str, str | int | None]] = deque(maxlen=NEWEST)
        """The lines of the last changes, the newest last, each with its time as `at_ms`."""
        self.newest_refused: deque[dict[str, str | int | None]] = deque(maxlen=NEWEST_REFUSED)
        """The lines of the last changes that the gate refused."""

    @property
    def lines(self) -> list[dict[str, str | int | None]]:
        """Both, the newest last."""
        both = (*self.newest, *self.newest_refused)
        return sorted(both, key=lambda line: cast("int", line["at_ms"]))

    def routes(self, routes: Iterable[Route]) -> Iterator[Route]:
        """The routes, with those of administrators followed."""
        for route in routes:
            code = int(route.header.code)
            if code in CHANGES or (route.pool == POOL and code not in OF_CLIENTS):
                followed = self._followed(route.handler, code in CHANGES)
                yield route._replace(handler=followed, run=None)
            else:
                yield route

    def behind(self, gate: Gate) -> Gate:
        """The gate; changes that it refuses have a line."""

        def check(command: Command, connection: Caller) -> Verdict:
            checked = gate(command, connection)
            if command.code not in CHANGES:
                return checked
            if isinstance(checked, Generator):
                return end(checked, command, connection)
            tell(checked, command, connection)
            return checked

        def end(
            checking: Generator[None, None, Answer | None], command: Command, connection: Caller
        ) -> Generator[None, None, Answer | None]:
            refused = yield from checking
            tell(refused, command, connection)
            return refused

        def tell(refused: Answer | None, command: Command, connection: Caller) -> None:
            if refused is not None:
                line = line_of(self._asked(command, connection), refused)
                log.info("admin.refused", **line)
                self.newest_refused.append({"at_ms": self._now_ms(), **line, "changes": None})

        return check

    def _followed(self, handler: Handler, changes: bool) -> Handler:
        def follow(header: Header, command: Command, connection: Caller) -> Outcome:
            if not changes and not self._every():
                return handler(header, command, connection)
            request = self._asked(command, connection)
            if not request.changes and not self._every():
                return handler(header, command, connection)
            with AuditedBlock(self._tell, request):
                outcome = handler(header, command, connection)
            if is_steps(outcome):
                return self._steps(outcome, request)
            return self._end(outcome, request)

        return follow

    def _steps(self, steps: Steps, request: AuditedRequest) -> Steps:
        with AuditedBlock(self._tell, request):
            outcome = yield from steps
        return self._end(outcome, request)

    def _end(self, outcome: Plain, request: AuditedRequest) -> Plain:
        if isinstance(outcome, PendingAnswer):
            return PendingAnswer(self._later(outcome.work, request))
        if outcome is None or outcome is HELD or isinstance(outcome, Answer):
            self._tell(request, outcome if isinstance(outcome, Answer) else Answer())
            return outcome
        return self._later(outcome, request)

    async def _later(self, work: Awaitable[Later], request: AuditedRequest) -> Later:
        with AuditedBlock(self._tell, request):
            outcome = await work
        self._tell(request, outcome if isinstance(outcome, Answer) else Answer())
        return outcome

    def _asked(self, command: Command, connection: Caller) -> AuditedRequest:
        try:
            fields = command.ext_fields()
        except HeaderError:
            fields = {}
        names = [
            f"{name}={text[:VALUE_CHARS]}"
            for name, text in sorted(fields.items())
            if name not in NOT_SAID
        ]
        names += names_in_body(command)
        # Elsewhere, as from a white address, it may be anybody's name.
        user = fields.get(ACCESS_KEY, "")
        user = user if user in connection.accounts else ""
        name, needed = RequestCode(command.code).name, CHANGE_WITH.get(command.code)
        changes = command.code in CHANGES and (needed is None or needed in fields)
        return AuditedRequest(name, user or "-", connection.address, " ".join(names), changes)

    def _tell(self, request: AuditedRequest, answer: Answer) -> None:
        line = line_of(request, answer)
        if request.changes:
            changes = answer.changes if isinstance(answer, ChangeAnswer) else ""
            log.info("admin.changed", **line, changes=changes or None)
            self.newest.append({"at_ms": self._now_ms(), **line, "changes": changes or None})
        else:
            log.info("admin.asked", **line)


def line_of(request: AuditedRequest, answer: Answer) -> dict[str, str | None]:
    """The line of a request and its end."""
    result = RESULTS.get(answer.code, str(answer.code))
    reason = answer.remark if answer.code else None
    return dict(zip(LINE, (*request[:-1], result, reason), strict=True))


class AuditedBlock:
    """A block whose error is the end of a request."""

    def __init__(
        self, tell: Callable[[AuditedRequest, Answer], None], request: AuditedRequest
    ) -> None:
        self._tell = tell
        self._asked = request

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        # A postponed request comes again; with what is no `Exception` the broker ends.
        if isinstance(error, Exception) and not isinstance(error, RequestPostponed):
            failed = Answer(int(ResponseCode.SYSTEM_ERROR), remark=type(error).__name__)
            self._tell(self._asked, refusal(error) or failed)


def names_in_body(command: Command) -> list[str]:
    """The names in a body: topics, groups, settings. Never a value."""
    if command.code in SETTINGS:
        lines = bytes(command.body[:BODY_BYTES]).decode(errors="replace").splitlines()
        return [line.partition("=")[0][:VALUE_CHARS] for line in lines[:NAMES_MAX] if "=" in line]
    row = PERMISSIONS.get(command.code)
    if row is None or row.body is None:
        return []
    try:
        return [f"{need.kind}:{need.name}" for need in islice(row.body(command.body), NAMES_MAX)]
    except BodyError:
        return []
