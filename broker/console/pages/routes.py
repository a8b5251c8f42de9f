"""Every page of the console by its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import Route

from aerobee.broker.console.pages import questions
from aerobee.broker.console.pages.changes import Changes
from aerobee.broker.console.pages.frame import Fields, Frame
from aerobee.broker.console.pages.letters import Letters
from aerobee.broker.console.pages.live import Live
from aerobee.broker.console.pages.people import People
from aerobee.broker.console.pages.rates import Rates
from aerobee.broker.console.pages.rendering import Rendering
from aerobee.broker.console.pages.roles import Roles
from aerobee.broker.console.pages.views import Views

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from aerobee.broker.console.console import Console

KEPT: Final = "public, max-age=31536000, immutable"
"""Browsers keep a file for ever: its address changes with its content."""


def routes(console: Console) -> list[Route]:
    """The routes of all pages, and of the files that they load.

    Templates are compiled here: not for the loop, which that would hold for too long.
    """
    rendering = Rendering()
    frame = Frame(console, rendering)
    rates = Rates()
    views, changes = Views(frame, rates), Changes(frame)
    roles = Roles(frame)
    letters, people, live = Letters(frame), People(frame), Live(frame, rates, views)
    shown = {
        "/": views.overview,
        "/groups": views.groups,
        "/group": views.group,
        "/topics": views.topics,
        "/topic": views.topic,
        "/messages": views.messages,
        "/message": views.message,
        "/tail": views.tail,
        "/dead": views.dead,
        "/letters": views.letters,
        "/clients": views.clients,
        "/client": views.client,
        "/replication": views.replication,
        "/settings": views.settings,
        "/audit": views.audit,
        "/users": views.users,
        "/live/rates": live.rates,
        "/live/tail": live.tail,
    }
    changed = {
        **questions.pages(frame),
        "/reset": changes.reset,
        "/topic/new": changes.new_topic,
        "/topic/alter": changes.alter_topic,
        "/setting": changes.setting,
        "/switch": roles.switch,
        "/promote": roles.promote,
        "/letters/edit": letters.edit,
    }
    ordered = {"/letters/resend": letters.resend, "/users": people.create, "/rights": people.grant}

    def made(
        pages: Mapping[str, Callable[[Request], Awaitable[Response]]], *methods: str
    ) -> list[Route]:
        return [Route(path, frame.answering(page), methods=methods) for path, page in pages.items()]

    return [
        *made(shown, "GET"),
        *made(changed, "GET", "POST"),
        *made(ordered, "POST"),
        Route("/login", frame.answering(_login(frame)), methods=["GET"]),
        Route("/static/{name:path}", _file(rendering), methods=["GET"]),
    ]


def _login(frame: Frame) -> Callable[[Request], Awaitable[Response]]:
    """The form in which a user signs in, and is led to where he wanted to go."""

    async def login(request: Request) -> Response:
        query = Fields(request.query_params)
        text = frame.translator(request)
        failures = {
            "wrong": text("The name or the secret is wrong."),
            "too_many": text("There were too many wrong secrets: wait a minute."),
            "off": text("This broker has no users: there is nothing to sign in to."),
        }
        return await frame.show(
            request,
            "login.html",
            here="",
            alone=True,
            next=query["next"] or "/",
            failure=failures.get(query["failed"], ""),
        )

    return login


def _file(rendering: Rendering) -> Callable[[Request], Awaitable[Response]]:
    async def file(request: Request) -> Response:
        asset = rendering.assets.get(request.path_params["name"])
        if asset is None:
            return Response("there is no such file\n", 404, media_type="text/plain")
        kept = {"cache-control": KEPT} if asset.tag in request.url.query else {}
        return Response(asset.content, media_type=asset.media_type, headers=kept)

    return file
