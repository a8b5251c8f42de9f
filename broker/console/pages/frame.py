"""The parts that all pages have in common: who looks, in which language and colours, and where they
are.

A request becomes a page by the name of a template and what it shows; a `Failure` becomes a page
that says what is wrong, with its status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import HTMLResponse, RedirectResponse, Response

from aerobee.broker.console.looks.viewers import Failure, Viewer
from aerobee.broker.console.pages.links import link
from aerobee.broker.console.pages.rendering import LANGUAGES, Rendering
from aerobee.broker.console.pages.states import State
from aerobee.broker.console.requests import fields_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request

    from aerobee.broker.console.console import Console
    from aerobee.broker.console.looks.snapshot import Snapshot

LANGUAGE_COOKIE: Final = "aerobee_language"
THEME_COOKIE: Final = "aerobee_theme"
THEMES: Final = ("light", "dark")
COOKIE_S: Final = 365 * 24 * 3_600
NOBODY: Final = Viewer(address="")
"""The viewer of the page to sign in."""
KEPT: Final = ("language", "theme")
"""Parameters that every page takes, and that its links do not hand on."""


class Entry(NamedTuple):
    """A place in the navigation."""

    path: str
    label: str
    icon: str
    part: str = ""
    """The heading in front of it."""
    of_own_broker: bool = False
    """Whether it is about the broker in whose process the console runs."""


NAVIGATION: Final = (
    Entry("/", "Overview", "overview"),
    Entry("/groups", "Groups", "groups"),
    Entry("/topics", "Topics", "topics"),
    Entry("/messages", "Find messages", "messages"),
    Entry("/dead", "Dead letters", "dead"),
    Entry("/clients", "Clients", "clients"),
    Entry("/reset", "Move offsets", "reset"),
    Entry("/replication", "Replication and store", "replication", "The brokers"),
    Entry("/settings", "Settings", "settings", of_own_broker=True),
    Entry("/audit", "Who changed what", "audit", of_own_broker=True),
    Entry("/users", "Users and rights", "users"),
)


class Frame:
    """Makes pages for requests."""

    def __init__(self, console: Console, rendering: Rendering) -> None:
        self.console = console
        self.rendering = rendering

    async def show(
        self, request: Request, template: str, /, *, here: str, status: int = 200, **shown: Any
    ) -> Response:
        """A page. `here` is its place in the navigation."""
        viewer = request.state.viewer or NOBODY
        language, theme = language_of(request), theme_of(request)
        query = Fields(request.query_params)
        snapshot = await self.console.snapshot(viewer) if here else None
        about = {
            "alone": False,
            "again": lambda **changes: again(request, changes),
            "cluster_name": cluster_name(snapshot),
            "csrf_token": viewer.csrf,
            "has_own_address": request.method == "GET",
            "here": here,
            "may_change": viewer.may_write and not self.console.readable,
            "navigation": [
                entry for entry in NAVIGATION if self.console.own or not entry.of_own_broker
            ],
            "notices": self._notices(request, snapshot) if here != "/" else (),
            "query": query,
            "read_only": self.console.readable,
            "theme": theme,
            "turned": lambda column, falling: turned(query["sort"], column, falling),
            "user": viewer.name,
        }
        html = await self.console.beside(self.rendering.page, template, language, about | shown)
        return HTMLResponse(html, status, headers={"cache-control": "no-store"})

    async def done(
        self,
        request: Request,
        *,
        here: str,
        title: str,
        result: str,
        back: str,
        notes: Sequence[str] = (),
        rows: Sequence[Any] = (),
    ) -> Response:
        """The page behind a change: what it came to, with `rows` as a table."""
        return await self.show(
            request,
            "done.html",
            here=here,
            title=title,
            said=result,
            back=back,
            notes=notes,
            rows=rows,
        )

    def _notices(self, request: Request, snapshot: Snapshot | None) -> list[State]:
        """The notice of every page but the overview, which has the findings, about brokers that do
        not tell what they know.
        """
        text = self.translator(request)
        if snapshot is None or not snapshot.missing:
            return []
        notice = text(
            "What these brokers have is not shown here, because they do not tell it: {brokers}.",
            brokers=", ".join(snapshot.missing),
        )
        missing = {
            row["lacks"]: text(
                "The account needs the right {right}: until then the topics and groups there are "
                "not shown, nor are those that it may see.",
                right=row["lacks"],
            )
            for row in snapshot.brokers
            if row["lacks"] and row["broker"] in snapshot.missing
        }
        return [State("error", " ".join([notice, *missing.values()]))]

    def piece(self, request: Request, template: str, /, **shown: Any) -> str:
        """A piece of a page, for one that is open."""
        return self.rendering.page(template, language_of(request), shown)

    def translator(self, request: Request) -> Callable[..., str]:
        """The function that says something in the language of a request."""
        return self.rendering.translator(language_of(request))

    def answering(
        self, view: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A view that keeps the chosen language and colours, and says what failed."""

        async def answer(request: Request) -> Response:
            if request.method == "GET" and not request.query_params.keys().isdisjoint(KEPT):
                return chosen(request)
            try:
                return await view(request)
            except Failure as failure:
                return await self.failed(request, failure)

        return answer

    async def failed(self, request: Request, failure: Failure) -> Response:
        """The page of a failure."""
        text = self.translator(request)
        titles = {
            400: text("That cannot be done so"),
            401: text("Sign in first"),
            403: text("You may not do that"),
            404: text("That is not there"),
            409: text("That cannot be done now"),
        }
        title = titles.get(failure.status, text("That did not work"))
        return await self.show(
            request,
            "failure.html",
            here="",
            status=failure.status,
            title=title,
            failure=self.said(request, failure),
        )

    def said(self, request: Request, failure: Failure) -> str:
        """A failure in the language of a request; the text of a broker stays as it is."""
        return self.translator(request)(failure.template, **failure.about)


def cluster_name(snapshot: Snapshot | None) -> str:
    """The cluster, and the broker in whose process the console runs."""
    if snapshot is None:
        return ""
    figures = snapshot.overview
    return " · ".join(name for name in (figures["cluster"], figures["broker"]) if name)


class Fields(dict[str, str]):
    """Fields of a query or a form, the last of each name; empty texts for those not given."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__({name: str(value) for name, value in fields.items()})

    def __missing__(self, name: str) -> str:
        return ""

    def __getattr__(self, name: str) -> str:
        return self[name]

    def needed(self, name: str) -> str:
        """A field that must be there. Raises: Failure."""
        value = self[name].strip()
        if not value:
            raise Failure(400, "usage", "the field {name} is empty", {"name": name})
        return value


def viewer_of(request: Request) -> Viewer:
    """The viewer."""
    viewer = request.state.viewer
    assert isinstance(viewer, Viewer)
    return viewer


def language_of(request: Request) -> str:
    """The language that was chosen, else the first of the browser's that there is."""
    cookie = request.cookies.get(LANGUAGE_COOKIE, "")
    if cookie in LANGUAGES:
        return cookie
    for part in request.headers.get("accept-language", "").split(","):
        name = part.partition(";")[0].strip().lower()[:2]
        if name in LANGUAGES:
            return name
    return LANGUAGES[0]


def theme_of(request: Request) -> str:
    """The colours that were chosen; empty: those of the system."""
    cookie = request.cookies.get(THEME_COOKIE, "")
    return cookie if cookie in THEMES else ""


def chosen(request: Request) -> Response:
    """Keep a language or colours, and show the page in them."""
    response = RedirectResponse(again(request, {}), 303)
    for name, cookie, values in (
        ("language", LANGUAGE_COOKIE, LANGUAGES),
        ("theme", THEME_COOKIE, THEMES),
    ):
        value = request.query_params.get(name)
        if value in values:
            response.set_cookie(cookie, value, COOKIE_S, httponly=True, samesite="strict")
        elif value is not None:
            response.delete_cookie(cookie, httponly=True, samesite="strict")
    return response


def again(request: Request, changes: Mapping[str, object]) -> str:
    """The address of this page with some parameters changed."""
    kept = {name: value for name, value in request.query_params.items() if name not in KEPT}
    return link(request.url.path, **(kept | dict(changes)))


def turned(sort: str, column: str, falling: bool) -> str:
    """The order that a click on a column makes: the other one, or the usual one of a new column."""
    if sort in (column, f"-{column}"):
        return column if sort.startswith("-") else f"-{column}"
    return f"-{column}" if falling else column


async def given_fields(request: Request) -> Fields:
    """The fields of the form that was sent, or of the query that asks for one. Raises: Failure."""
    if request.method == "POST":
        return Fields(dict(await form_of(request)))
    return Fields(request.query_params)


async def form_of(request: Request) -> list[tuple[str, str]]:
    """The fields of a form in order. Raises: Failure."""
    try:
        return fields_of(await request.body())
    except ValueError as error:
        raise Failure(400, "usage", str(error)) from None
