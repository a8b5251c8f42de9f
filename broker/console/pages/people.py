"""Pages on which users are made and deleted, and rights given and taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages.frame import Fields, form_of, given_fields, viewer_of
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.pages.frame import Frame


class People:
    """The pages on which users and rights change."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._console = frame.console

    async def create(self, request: Request) -> Response:
        """Make a user."""
        text = self._frame.translator(request)
        form = Fields(dict(await form_of(request)))
        name = form.needed("name")
        form.needed("secret")
        arguments: dict[str, Any] = {"name": name, "secret": form["secret"]}
        if form["super"]:
            arguments["super"] = True
        await self._console.call(viewer_of(request), "users.create", arguments, confirmed=True)
        result = text("User {name} is there.", name=name)
        if not form["super"]:
            result += " " + text("Without rights: grant some now.")
        return await self._done(request, result, link("/users", user=name))

    async def delete(self, request: Request) -> Response:
        """Delete a user with all rights."""
        text = self._frame.translator(request)
        form = await given_fields(request)
        name = form.needed("name")
        if request.method == "POST":
            await self._console.call(
                viewer_of(request), "users.delete", {"name": name}, confirmed=True
            )
            return await self._done(request, text("User {name} is deleted.", name=name))
        question = text(
            "User {name} is deleted with all rights. Clients that sign in as {name} are refused "
            "from then on, and their connections end.",
            name=name,
        )
        fields = [("name", name)]
        return await self._ask(request, question, text("Delete"), "/user/delete", fields)

    async def grant(self, request: Request) -> Response:
        """Give a right."""
        text = self._frame.translator(request)
        fields = await form_of(request)
        form = Fields(dict(fields))
        actions = [value for name, value in fields if name == "action"]
        if not actions:
            raise Failure(400, "usage", "choose what the user may do")
        user, resource = form.needed("user"), f"{form['kind']}:{form.needed('resource')}"
        arguments = {"user": user, "resource": resource, "actions": actions}
        await self._console.call(viewer_of(request), "acl.grant", arguments, confirmed=True)
        result = text(
            "{user} may {actions} on {resource}.",
            user=user,
            actions=", ".join(actions),
            resource=resource,
        )
        return await self._done(request, result)

    async def revoke(self, request: Request) -> Response:
        """Take a right."""
        text = self._frame.translator(request)
        form = await given_fields(request)
        user, resource = form.needed("user"), form.needed("resource")
        values = {"user": user, "resource": resource}
        if request.method == "POST":
            await self._console.call(viewer_of(request), "acl.revoke", values, confirmed=True)
            return await self._done(request, text("{user} has no entry on {resource}.", **values))
        question = text(
            "The entry of {user} on {resource} is taken away: what it allowed is refused from the "
            "next request on.",
            **values,
        )
        fields = [*values.items()]
        return await self._ask(request, question, text("Take away"), "/right/delete", fields)

    async def _done(self, request: Request, result: str, back: str = "/users") -> Response:
        return await self._frame.done(
            request,
            here="/users",
            title=self._frame.translator(request)("Users and rights"),
            result=result,
            back=back,
        )

    async def _ask(
        self, request: Request, question: str, verb: str, path: str, fields: list[tuple[str, str]]
    ) -> Response:
        return await self._frame.show(
            request,
            "ask.html",
            here="/users",
            title=self._frame.translator(request)("Users and rights"),
            question=question,
            verb=verb,
            path=path,
            back="/users",
            fields=fields,
            grave=True,
        )
