"""Pages on which users are made and rights given; `questions` deletes users and takes rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages.frame import Fields, form_of, viewer_of
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.pages.frame import Frame


class People:
    """The pages on which users and rights are given."""

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

    async def grant(self, request: Request) -> Response:
        """Give a right; one in place of another asks first."""
        text = self._frame.translator(request)
        fields = await form_of(request)
        form = Fields(dict(fields))
        actions = [value for name, value in fields if name == "action"]
        if not actions:
            raise Failure(400, "usage", "choose what the user may do")
        user, resource = form.needed("user"), f"{form['kind']}:{form.needed('resource')}"
        if not form["confirmed"] and (held := await self._entry(request, user, resource)):
            question = text(
                "{user} has an entry on {resource}, {decision} {actions} from {sources}. It is "
                "replaced: {user} may {new} there then, from anywhere, and nothing else.",
                user=user,
                resource=resource,
                decision=text("may") if held["decision"] == "allow" else text("may not"),
                actions=", ".join(held["actions"]),
                sources=", ".join(held["sources"]) or text("anywhere"),
                new=", ".join(actions),
            )
            return await self._frame.show(
                request,
                "ask.html",
                here="/users",
                title=text("Users and rights"),
                question=question,
                verb=text("Replace it"),
                path="/rights",
                back="/users",
                fields=fields,
                grave=True,
            )
        arguments = {"user": user, "resource": resource, "actions": actions}
        await self._console.call(viewer_of(request), "acl.grant", arguments, confirmed=True)
        result = text(
            "{user} may {actions} on {resource}.",
            user=user,
            actions=", ".join(actions),
            resource=resource,
        )
        return await self._done(request, result)

    async def _entry(self, request: Request, user: str, resource: str) -> Mapping[str, Any] | None:
        """The entry of a user on a resource that a new one would replace. Raises: Failure."""
        outcome = await self._console.call(viewer_of(request), "acl.show", {"user": user})
        return next(
            (
                row
                for row in outcome.value or ()
                if (row["resource"], row["policy"]) == (resource, "custom")
            ),
            None,
        )

    async def _done(self, request: Request, result: str, back: str = "/users") -> Response:
        return await self._frame.done(
            request,
            here="/users",
            title=self._frame.translator(request)("Users and rights"),
            result=result,
            back=back,
        )
