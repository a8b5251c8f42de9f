"""Pages that ask before they change something that has a name: all of one shape, in one table.

A GET tells what will follow, a POST does it. A GET never changes anything: the consequence that it
tells is read, or comes from the command, tried with `dry_run`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.console.pages import formats
from aerobee.broker.console.pages.frame import given_fields, viewer_of
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.console import Console
    from aerobee.broker.console.looks.viewers import Viewer
    from aerobee.broker.console.pages.frame import Frame

    Texts = Callable[..., str]
    Tell = Callable[[Console, Viewer, str, Texts], Awaitable[Mapping[str, object]]]


async def _nothing(
    _console: Console, _viewer: Viewer, _name: str, _text: Texts
) -> dict[str, object]:
    return {}


async def _waiting(console: Console, viewer: Viewer, name: str, text: Texts) -> dict[str, object]:
    """The members and the lag of a group, if the viewer may see it."""
    groups, _ = await console.rows(viewer, "groups")
    row = next((row for row in groups if row["group"] == name), {})
    unknown = text("an unknown number of")
    return {what: formats.number(row.get(what)) or unknown for what in ("members", "lag")}


async def _lost(console: Console, viewer: Viewer, name: str, text: Texts) -> dict[str, object]:
    """The messages of a topic and the groups that read it, both of which its deletion ends."""
    arguments = {"name": name, "dry_run": True}
    lost = (await console.call(viewer, "topic.delete", arguments)).value
    groups = ", ".join(
        f"{group} ({text('{n} behind', n=formats.number(lag))})"
        for group, lag in lost["groups"].items()
    )
    return {"messages": formats.number(lost["messages"]), "groups": groups or text("none")}


class Question(NamedTuple):
    """A change that is asked about, then done. Its texts take the fields as values."""

    path: str
    here: str
    """The place of the page in the navigation, where the change of a thing leads that ends."""
    command: str
    arguments: Mapping[str, str]
    """The fields of the form, each with the argument of the command that it becomes. The first
    names what is changed."""
    title: str
    question: str
    verb: str
    done: str
    page: str = ""
    """The page of the thing, for the way back; empty: `here`."""
    ends: bool = False
    """Whether that page is gone behind the change."""
    tell: Tell = _nothing
    """The other values of the question: what will follow. Raises: Failure."""
    grave: bool = True


QUESTIONS: Final = (
    Question(
        path="/group/pause",
        here="/groups",
        command="group.pause",
        arguments={"name": "name"},
        title="Pause {name}",
        question="Brokers give group {name} no more messages until it is let go on. Its {members} "
        "members stay connected; {lag} messages wait now, and those that expire meanwhile are "
        "never read.",
        verb="Pause",
        done="Group {name} gets no more messages.",
        page="/group",
        tell=_waiting,
    ),
    Question(
        path="/group/resume",
        here="/groups",
        command="group.resume",
        arguments={"name": "name"},
        title="Let {name} go on",
        question="Brokers give group {name} messages again, from where it stood: {lag} wait for "
        "it.",
        verb="Let it go on",
        done="Group {name} gets messages again.",
        page="/group",
        tell=_waiting,
        grave=False,
    ),
    Question(
        path="/topic/delete",
        here="/topics",
        command="topic.delete",
        arguments={"name": "name"},
        title="Delete topic {name}",
        question="{messages} messages of topic {name} are deleted, and the offsets of the groups "
        "that read it: {groups}. Nothing brings them back.",
        verb="Delete it",
        done="Topic {name} is deleted.",
        page="/topic",
        ends=True,
        tell=_lost,
    ),
    Question(
        path="/client/close",
        here="/clients",
        command="connections.close",
        arguments={"id": "client"},
        title="Close the connections of {id}",
        question="All connections of {id} are closed. Most clients connect again by themselves: "
        "to keep one out, disable its user or pause its group.",
        verb="Close them",
        done="The connections of {id} are closed.",
        page="/client",
    ),
    Question(
        path="/user/delete",
        here="/users",
        command="users.delete",
        arguments={"name": "name"},
        title="Users and rights",
        question="User {name} is deleted with all rights. Clients that sign in as {name} are "
        "refused from then on, and their connections end.",
        verb="Delete",
        done="User {name} is deleted.",
    ),
    Question(
        path="/right/delete",
        here="/users",
        command="acl.revoke",
        arguments={"user": "user", "resource": "resource"},
        title="Users and rights",
        question="The entry of {user} on {resource} is taken away: what it allowed is refused from "
        "the next request on.",
        verb="Take away",
        done="{user} has no entry on {resource}.",
    ),
)


def pages(frame: Frame) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """The pages of the table by their paths."""
    return {question.path: partial(_answer, frame, question) for question in QUESTIONS}


async def _answer(frame: Frame, question: Question, request: Request) -> Response:
    text, viewer, form = frame.translator(request), viewer_of(request), await given_fields(request)
    fields = {name: form.needed(name) for name in question.arguments}
    title = text(question.title, **fields)
    page = link(question.page, **fields) if question.page else question.here
    if request.method == "POST":
        arguments: dict[str, Any] = {question.arguments[name]: fields[name] for name in fields}
        outcome = await frame.console.call(viewer, question.command, arguments, confirmed=True)
        return await frame.done(
            request,
            here=question.here,
            title=title,
            result=text(question.done, **fields),
            back=question.here if question.ends else page,
            notes=outcome.notes,
            rows=outcome.value if isinstance(outcome.value, list) else [],
        )
    values = await question.tell(frame.console, viewer, next(iter(fields.values())), text)
    return await frame.show(
        request,
        "ask.html",
        here=question.here,
        title=title,
        question=text(question.question, **fields, **values),
        verb=text(question.verb),
        path=question.path,
        back=page,
        fields=[*fields.items()],
        grave=question.grave,
    )
