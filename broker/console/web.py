"""The web application of the console: its guard, the API, and the pages below it.

Each request passes the guard first: the Host header, the peer, the size of its body, the viewer,
and for a change where it comes from. Only then is the body read. The handlers that follow know the
viewer.
"""

from __future__ import annotations

import hmac
import json
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote

import trio
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Mount, Route, Router

from aerobee.broker.console.lists import arranged, query_of
from aerobee.broker.console.looks.viewers import Failure, Viewer
from aerobee.broker.console.openapi import PREFIX, QUERY, document
from aerobee.broker.console.operations import GET, LISTS, OBJECTS, OPERATIONS
from aerobee.broker.console.requests import (
    BODIES_MAX,
    BODY_MAX,
    BODY_S,
    FORM_FIELDS_MAX,
    HEADERS,
    LOGIN_MAX,
    NAME_MAX,
    NOT_KEPT,
    SAFE,
    SECRET_MAX,
    basic_of,
    cookie,
    fields_of,
    is_loopback,
    is_ours,
    is_same_site,
    next_page,
    page_behind,
    token_of,
)
from aerobee.broker.http.app import Slots, serve
from aerobee.remoting.stats import RemotingStats
from aerobee.threads import in_thread

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from aerobee.broker.config.settings.console import ConsoleConfig
    from aerobee.broker.console.console import Console
    from aerobee.broker.console.operations import Operation

LOGIN, LOGOUT, STATIC = "/login", "/logout", "/static/"
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
STREAM: Final = "text/event-stream"
REALM: Final = 'Basic realm="aerobee", charset="UTF-8"'
QUERY_MAX: Final = 8 * 1024
"""Characters of a query."""
HEADERS_MAX: Final = 16 * 1024
"""Bytes of all headers."""
PAGES: Final = "aerobee.broker.console.pages.routes"


class Refusal(Exception):
    """The answer to a request that the guard lets not pass."""

    def __init__(self, response: Response) -> None:
        self.response = response


class Guard:
    """Stands in front of the application."""

    def __init__(self, app: ASGIApp, console: Console, config: ConsoleConfig) -> None:
        self._app = app
        self._console = console
        self._secure = config.console_tls_enable
        names = [config.console_host, *config.console_names.split(",")]
        self._names = frozenset(name.strip().lower() for name in names if name.strip())
        self._bodies = 0
        """Bodies of viewers that are on their way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            return
        send = partial(self._send, send, scope["path"])
        try:
            receive = await self._admitted(scope, receive)
        except Refusal as refused:
            await refused.response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _send(self, send: Send, path: str, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, text in HEADERS.items():
                headers[name] = text
            if not path.startswith(STATIC):
                for name, text in NOT_KEPT.items():
                    headers.setdefault(name, text)
        await send(message)

    async def _admitted(self, scope: Scope, receive: Receive) -> Receive:
        """Let a request pass, with its viewer, and its body read. Raises: Refusal."""
        headers, path = Headers(scope=scope), scope["path"]
        address = scope["client"][0] if scope.get("client") else ""
        if not is_ours(headers.get("host", ""), self._names):
            text = f"this host name is not known here: {self._console.naming}"
            raise refusal(scope, Failure(421, "unknown_host", text))
        if sum(len(name) + len(text) for name, text in scope["headers"]) > HEADERS_MAX:
            raise refusal(scope, Failure(431, "usage", f"headers have at most {HEADERS_MAX} bytes"))
        if len(scope["query_string"]) > QUERY_MAX:
            raise refusal(scope, Failure(414, "usage", f"a query has at most {QUERY_MAX} bytes"))
        if not self._console.has_users and not is_loopback(address):
            text = (
                f"the console is for this host alone: {self._console.letting_in} to let others in"
            )
            raise refusal(scope, Failure(403, "forbidden", text))
        try:
            length = length_of(headers, scope["method"], path)
        except Failure as failure:
            raise refusal(scope, failure) from None
        viewer = self._viewer(headers, address, scope)
        scope.setdefault("state", {})["viewer"] = viewer
        if scope["method"] not in SAFE:
            self._check_source(scope, headers)
        is_open = path in (LOGIN, LOGOUT) or path.startswith(STATIC)
        if viewer is None and not is_open:
            raise self._unknown(scope)
        body = await self._body(scope, receive, viewer) if length else b""
        if scope["method"] not in SAFE:
            self._check_token(scope, headers, viewer, body)
        return replayed(body, receive)

    async def _body(self, scope: Scope, receive: Receive, viewer: Viewer | None) -> bytes:
        """The body of a request, unless many are on their way. Raises: Refusal.

        A login always has a place: it is short, and else others would keep users out.
        """
        counted = viewer is not None
        if counted and self._bodies >= BODIES_MAX:
            text = f"{BODIES_MAX} other bodies are on their way: try again"
            raise refusal(scope, Failure(503, "too_many", text))
        self._bodies += counted
        try:
            with trio.move_on_after(BODY_S):
                return await read(scope, receive)
        finally:
            self._bodies -= counted
        raise refusal(scope, Failure(408, "usage", f"the body did not come within {BODY_S:g} s"))

    def _viewer(self, headers: Headers, address: str, scope: Scope) -> Viewer | None:
        """The sender of a request; None: it does not say. Raises: Refusal."""
        if not self._console.has_users:
            return self._console.nobody(address)
        credentials = basic_of(headers.get("authorization", ""))
        if credentials is not None and scope["path"].startswith(PREFIX):
            try:
                return self._console.signed_in(*credentials, address)
            except Failure as failure:
                raise refusal(scope, failure) from None
        token = token_of(scope)
        return self._console.session_of(token, address) if token else None

    def _check_source(self, scope: Scope, headers: Headers) -> None:
        """Check that a change comes from a page of ours, or a script. Raises: Refusal."""
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if not is_same_site(host, origin, headers.get("sec-fetch-site", "")):
            text = (
                "this change does not come from a page of the console; a proxy in front of it has"
                " to pass the Host header on"
            )
            raise refusal(scope, Failure(403, "cross_site", text))
        kind = kind_of(headers)
        if kind not in (JSON, FORM) or (scope["path"].startswith(PREFIX) and kind != JSON):
            text = f"send {JSON}" if scope["path"].startswith(PREFIX) else f"send {FORM}"
            raise refusal(scope, Failure(415, "usage", text))

    def _check_token(
        self, scope: Scope, headers: Headers, viewer: Viewer | None, body: bytes
    ) -> None:
        """Check that a change of a session carries its token. Raises: Refusal."""
        try:
            fields = form_of(body) if kind_of(headers) == FORM else {}
        except Failure as failure:
            raise refusal(scope, failure) from None
        if viewer is None or not viewer.csrf:
            return
        token = headers.get("x-csrf-token", "") or fields.get("csrf", "")
        if not hmac.compare_digest(token.encode(), viewer.csrf.encode()):
            text = "the form is too old, or not from a page of the console: load it again"
            raise refusal(scope, Failure(403, "csrf", text))

    def _unknown(self, scope: Scope) -> Refusal:
        """The refusal of a request of nobody: to the login, if it is for a page."""
        if scope["path"].startswith(PREFIX):
            return refusal(scope, Failure(401, "unauthorized", "log in, or send name and secret"))
        headers = Headers(scope=scope)
        if STREAM in headers.get("accept", ""):
            # So a browser ends a stream for good; its page leads to the login then.
            return Refusal(Response(status_code=204))
        is_page = scope["method"] in SAFE
        page = page_behind(scope["path"], scope["query_string"]) if is_page else "/"
        login = f"{LOGIN}?next={quote(page)}"
        if headers.get("hx-request"):
            # A script asks for a part of a page, and would put the login in its place.
            return Refusal(Response(headers={"hx-redirect": login}))
        return Refusal(RedirectResponse(login, status_code=303))


async def read(scope: Scope, receive: Receive) -> bytes:
    """The body of a request, of which the server takes no more than its headers announce.

    Raises: Refusal when it does not come.
    """
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise refusal(scope, Failure(400, "usage", "the body did not come"))
        piece: bytes = message.get("body", b"")
        body += piece
        if not message.get("more_body"):
            return body


def kind_of(headers: Headers) -> str:
    """The content type, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def length_of(headers: Headers, method: str, path: str) -> int:
    """The bytes of a body by the headers of its request. Raises: Failure."""
    if headers.get("transfer-encoding"):
        # Chunks do not say how long all of them are.
        raise Failure(411, "usage", "send the body whole, with its content-length")
    # The server has refused what is no number.
    length = int(headers.get("content-length", "0"))
    if length and method in SAFE:
        raise Failure(413, "usage", f"a request by {method} has no body")
    most = LOGIN_MAX if path in (LOGIN, LOGOUT) else BODY_MAX
    if length > most:
        raise Failure(413, "usage", f"a body has at most {most} bytes here")
    return length


def replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body once more, then what comes."""
    over = False

    async def again() -> Message:
        nonlocal over
        if over:
            return await receive()
        over = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def form_of(body: bytes) -> dict[str, str]:
    """The fields of a form; of several with one name the last. Raises: Failure."""
    try:
        return dict(fields_of(body))
    except ValueError as error:
        raise Failure(400, "usage", str(error)) from None


def refusal(scope: Scope, failure: Failure) -> Refusal:
    """A failure as the answer of the guard: JSON for the API, else a line of text."""
    if scope["path"].startswith(PREFIX):
        return Refusal(failed(failure))
    return Refusal(Response(f"{failure.text}\n", failure.status, media_type="text/plain"))


def failed(failure: Failure) -> JSONResponse:
    """A failure as JSON."""
    headers = {"www-authenticate": REALM} if failure.status == 401 else None
    content = {"error": failure.kind, "text": failure.text}
    return JSONResponse(content, failure.status, headers)


# ── The API ──


class IdWithSlashes(PathConvertor):
    """The id of a client in a path: it may have a slash in it, and is not empty."""

    regex = ".+"


register_url_convertor("id_with_slashes", IdWithSlashes())


class Api:
    """The API of a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def routes(self) -> list[Route]:
        """All routes, below PREFIX. Routes without arguments in the path come first."""
        operations = sorted(OPERATIONS.values(), key=lambda operation: "{" in operation.path)
        return [
            Route("/openapi.json", answered(self._openapi)),
            *(Route(f"/{name}", answered(partial(self._list, name))) for name in LISTS),
            *(Route(f"/{name}", answered(partial(self._object, name))) for name in OBJECTS),
            *(
                Route(
                    operation.path.replace("{client}", "{client:id_with_slashes}"),
                    answered(partial(self._operation, operation)),
                    methods=[operation.method],
                )
                for operation in operations
            ),
        ]

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(await in_thread(document))

    async def _list(self, name: str, request: Request) -> Response:
        known = [parameter["name"] for parameter in QUERY]
        for unknown in request.query_params.keys() - known:
            text = f"unknown argument {unknown!r:.80}; there are: {', '.join(known)}"
            raise Failure(400, "usage", text)
        query = query_of(request.query_params)
        rows, at_ms = await self._console.rows(request.state.viewer, name)

        def answer() -> Response:
            page = arranged(rows, query)
            return JSONResponse({"value": list(page.rows), "total": page.total, "at_ms": at_ms})

        return await self._console.beside(answer)

    async def _object(self, name: str, request: Request) -> Response:
        value, at_ms = await self._console.record(request.state.viewer, name)
        return JSONResponse({"value": value, "at_ms": at_ms})

    async def _operation(self, operation: Operation, request: Request) -> Response:
        if operation.method == GET:
            arguments, confirmed = arguments_of(request.url.query), False
        else:
            arguments = json_of(await request.body())
            confirmed = arguments.pop("confirm", False)
            if not isinstance(confirmed, bool):
                raise Failure(400, "usage", "confirm is true or false")
        arguments.update(request.path_params)
        outcome = await self._console.call(
            request.state.viewer, operation.name, arguments, confirmed=confirmed
        )
        content = {"value": outcome.value, "notes": list(outcome.notes)}
        more = {"asks": outcome.asks} if outcome.asks else {"complete": outcome.complete}
        status = 428 if outcome.asks else 200
        return await self._console.beside(JSONResponse, {**content, **more}, status)


def arguments_of(query: str) -> dict[str, Any]:
    """The arguments of a call in a query; several of one name are a list. Raises: Failure."""
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError as error:
        raise Failure(400, "usage", str(error)) from None
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def json_of(body: bytes) -> dict[str, Any]:
    """The object in a body; empty where there is none. Raises: Failure."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Failure(400, "usage", "the body is no JSON") from None
    if not isinstance(value, dict):
        raise Failure(400, "usage", "the body is no JSON object")
    return value


def answered(
    handle: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose failures are answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except Failure as failure:
            return failed(failure)

    return answer


# ── Sessions ──


class Doors:
    """POST /login and POST /logout."""

    def __init__(self, console: Console, *, secure: bool) -> None:
        self._console = console
        self._secure = secure

    @property
    def routes(self) -> list[Route]:
        """Both."""
        return [
            Route(LOGIN, self.log_in, methods=["POST"]),
            Route(LOGOUT, self.log_out, methods=["POST"]),
        ]

    async def log_in(self, request: Request) -> Response:
        """Begin a session with the fields name and secret, then go to `next`."""
        fields = form_of(await request.body())
        name, secret = fields.get("name", ""), fields.get("secret", "")
        page = next_page(fields.get("next", "/"))
        address = request.client.host if request.client else ""
        try:
            if len(name) > NAME_MAX or len(secret) > SECRET_MAX:
                raise Failure(401, "unauthorized", "name or secret is wrong")
            token, _ = self._console.log_in(name, secret, address)
        except Failure as failure:
            reason = {401: "wrong", 429: "too_many"}.get(failure.status, "off")
            path = f"{LOGIN}?failed={reason}&next={quote(page)}"
            return RedirectResponse(path, status_code=303)
        # Nobody else goes on with the session that this browser had before.
        self._console.sessions.end(token_of(request.scope))
        answer = RedirectResponse(page, status_code=303)
        answer.headers["set-cookie"] = cookie(request.scope, token, secure=self._secure)
        return answer

    async def log_out(self, request: Request) -> Response:
        """End the session."""
        self._console.sessions.end(token_of(request.scope))
        answer = RedirectResponse(LOGIN, status_code=303)
        answer.headers["set-cookie"] = cookie(request.scope, "", secure=self._secure)
        return answer


def make_app(console: Console, config: ConsoleConfig) -> Guard:
    """The whole application: pages where there are some."""
    pages: Sequence[Any] = ()
    if find_spec(PAGES) is not None:
        pages = import_module(PAGES).routes(console)
    api = Api(console).routes
    routes = [
        # A redirect to a path without the last slash would send the account to a server without TLS
        # where a proxy in front of this one has it.
        Mount(PREFIX, app=Router(api, redirect_slashes=False)),
        *Doors(console, secure=config.console_tls_enable).routes,
        *pages,
    ]
    handlers: dict[Any, Any] = {HTTPException: partial(not_served, api), Exception: failed_here}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), console, config)


async def not_served(api: Sequence[Route], request: Request, error: Exception) -> Response:
    """The answer to a path that there is not, or a method that it does not take."""
    assert isinstance(error, HTTPException)
    scope = request.scope
    is_api = scope["path"].startswith(PREFIX)
    if error.status_code != 405:
        what = f"request: {PREFIX}/openapi.json has all" if is_api else "page"
        failure = Failure(error.status_code, "not_found", f"there is no such {what}")
        return refusal(scope, failure).response
    methods = set((error.headers or {}).get("Allow", "").split(", "))
    if is_api:
        # The error names those of one route; others at the same path have others.
        there = [route for route in api if route.matches(scope)[0] is not Match.NONE]
        methods = {method for route in there for method in route.methods or ()}
    allowed = ", ".join(sorted(methods))
    text = f"{request.method} is not served here: send {allowed}"
    answer = refusal(scope, Failure(405, "usage", text)).response
    answer.headers["allow"] = allowed
    return answer


async def failed_here(request: Request, error: Exception) -> Response:
    """The answer where an error of ours ends a request; the server logs it."""
    text = "the console has failed here: the log has why"
    return refusal(request.scope, Failure(500, "failed", text)).response


async def serve_console(
    listener: socket.socket,
    console: Console,
    config: ConsoleConfig,
    tls: ssl.SSLContext | None,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; closes the listener."""
    slots = Slots(
        config.console_max_connections,
        RemotingStats(),
        key="consoleMaxConnections",
        name="console",
    )
    # Templates are compiled, for longer than the loop may be held.
    app = await in_thread(make_app, console, config)
    await serve(app, listener, slots, tls, streams=True, task_status=task_status)
