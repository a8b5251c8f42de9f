"""Pages with a form of their own that change something: what will follow, then what came of it.

A GET never changes anything. The consequence that it tells is read, or comes from the command,
tried with `dry_run`. Pages that only ask are in `questions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages import formats, states
from aerobee.broker.console.pages.frame import Fields, form_of, given_fields, viewer_of
from aerobee.broker.console.pages.links import link
from aerobee.broker.console.pages.rendering import counting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.looks.viewers import Outcome
    from aerobee.broker.console.pages.frame import Frame


class Changes:
    """The pages that change something."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._console = frame.console

    async def _call(self, request: Request, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """Do a change that the viewer has confirmed. Raises: Failure."""
        return await self._console.call(viewer_of(request), name, arguments, confirmed=True)

    async def _done(
        self, request: Request, title: str, result: str, back: str, outcome: Outcome, here: str
    ) -> Response:
        value = outcome.value
        return await self._frame.done(
            request,
            here=here,
            title=title,
            result=result,
            back=back,
            notes=outcome.notes,
            rows=value if isinstance(value, list) else [],
        )

    async def reset(self, request: Request) -> Response:
        """Move the offsets of a group: first without effect, then as that has result."""
        text = self._frame.translator(request)
        if request.method == "POST":
            form = Fields(dict(await form_of(request)))
            arguments = {name: form.needed(name) for name in ("topic", "to")}
            outcome = await self._call(request, "group.reset", arguments | {"name": form["group"]})
            result = _movement(outcome.value or [], text, done=True)
            back = link("/group", name=form["group"])
            return await self._done(request, text("Offsets moved"), result, back, outcome, "/reset")
        return await self._reset_form(request, text)

    async def _reset_form(self, request: Request, text: Callable[..., str]) -> Response:
        query = Fields(request.query_params)
        viewer = viewer_of(request)
        moves: Sequence[Mapping[str, Any]] | None = None
        failure, to = "", ""
        if query["group"] and query["topic"] and query["where"]:
            try:
                to = _position(query)
                arguments = {"name": query["group"], "topic": query["topic"], "to": to}
                outcome = await self._console.call(
                    viewer, "group.reset", {**arguments, "dry_run": True}
                )
                moves = outcome.value or []
            except Failure as error:
                failure = self._frame.said(request, error)
        groups, _ = await self._console.rows(viewer, "groups")
        topics, _ = await self._console.rows(viewer, "topics")
        fields = [("group", query["group"]), ("topic", query["topic"]), ("to", to)]
        return await self._frame.show(
            request,
            "reset.html",
            here="/reset",
            failure=failure,
            moves=moves,
            question=_movement(moves or [], text, done=False),
            fields=fields,
            group_names=await self._console.beside(
                states.proposed, groups, "group", query["group"]
            ),
            topic_names=await self._console.beside(
                states.proposed, topics, "topic", query["topic"]
            ),
        )

    async def new_topic(self, request: Request) -> Response:
        """Make a topic."""
        text = self._frame.translator(request)
        title, failure = text("New topic"), ""
        form = Fields({"queues": "8", "perm": "rw"})
        if request.method == "POST":
            form = Fields(dict(await form_of(request)))
            name = form.needed("name")
            arguments = {"name": name, "queues": _whole(form, "queues"), "perm": form["perm"]}
            await self._check_new(request, name)
            outcome = await self._call(request, "topic.create", arguments)
            result = text("Topic {name} is there.", name=name)
            back = link("/topic", name=name)
            return await self._done(request, title, result, back, outcome, "/topics")
        return await self._frame.show(
            request,
            "topic_form.html",
            here="/topics",
            title=title,
            failure=failure,
            path="/topic/new",
            name="",
            queues=form["queues"],
            perm=form["perm"],
            verb=text("Make it on every master"),
        )

    async def _check_new(self, request: Request, name: str) -> None:
        """Check that there is no such topic: it would get these settings, and lose queues unasked.

        Raises: Failure.
        """
        try:
            await self._console.call(viewer_of(request), "topic.describe", {"name": name})
        except Failure as error:
            if error.status != 404:
                raise
        else:
            raise Failure(
                409,
                "refused",
                "topic {name} is there already: change it on its own page",
                {"name": name},
            )

    async def alter_topic(self, request: Request) -> Response:
        """Change a topic; what would hide messages asks first."""
        text, viewer = self._frame.translator(request), viewer_of(request)
        fields = await form_of(request) if request.method == "POST" else []
        form = Fields(dict(fields) if fields else request.query_params)
        name = form.needed("name")
        title, back = text("Change topic {name}", name=name), link("/topic", name=name)
        outcome = await self._console.call(viewer, "topic.describe", {"name": name})
        if not outcome.complete:
            # Nobody knows what would be hidden there, and the change would not reach it.
            raise Failure(503, "unreachable", " ".join(outcome.notes))
        topic = outcome.value
        if request.method == "POST" and form["confirmed"]:
            arguments: dict[str, Any] = {"name": name}
            # A number that stays is not named: it would become that of the queues to read, too.
            if not _has_queues(topic, _whole(form, "queues")):
                arguments["queues"] = form["queues"]
            if form["perm"]:
                arguments["perm"] = form["perm"]
            outcome = await self._call(request, "topic.alter", arguments)
            result = text("Topic {name} is changed.", name=name)
            return await self._done(request, title, result, back, outcome, "/topics")
        now = topic["brokers"][0] if topic["brokers"] else {"write_queues": 8, "perm": "rw"}
        if request.method == "POST":
            queues, perm = _whole(form, "queues"), form["perm"] or now["perm"]
            hidden = _hidden(topic, queues)
            question = text(
                "Topic {name} gets {queues} queues on each broker, and clients may: {perm}.",
                name=name,
                queues=queues,
                perm=perm,
            )
            if hidden:
                question += " " + text(
                    "{hidden} messages in queues beyond that become invisible to consumers.",
                    hidden=formats.number(hidden),
                )
            return await self._frame.show(
                request,
                "ask.html",
                here="/topics",
                title=title,
                question=question,
                verb=text("Change it"),
                path="/topic/alter",
                back=back,
                fields=fields,
                grave=bool(hidden),
            )
        return await self._frame.show(
            request,
            "topic_form.html",
            here="/topics",
            title=title,
            failure="",
            path="/topic/alter",
            name=name,
            queues=now["write_queues"],
            perm=now["perm"],
            verb=text("Change …"),
        )

    async def setting(self, request: Request) -> Response:
        """Change a setting of the running broker."""
        text, viewer = self._frame.translator(request), viewer_of(request)
        form = await given_fields(request)
        key = form.needed("key")
        rows, _ = await self._console.rows(viewer, "settings")
        setting = next((row for row in rows if row["key"] == key), None)
        if setting is None:
            raise Failure(404, "unknown", "There is no setting {key}.", {"key": key})
        title = text("Change {key}", key=key)
        if request.method == "GET":
            return await self._frame.show(
                request, "setting.html", here="/settings", setting=setting, failure=""
            )
        value = form["value"]
        if form["confirmed"]:
            assert self._console.own is not None, "there are settings"
            arguments = {"values": [f"{key}={value}"], "broker": self._console.own.name}
            outcome = await self._call(request, "broker.config.set", arguments)
            result = text("{key} is {value} now, and at later starts.", key=key, value=value)
            return await self._done(request, title, result, "/settings", outcome, "/settings")
        question = text(
            "{key} is {before} and becomes {after}: at once, and at later starts.",
            key=key,
            before=setting["value"],
            after=value,
        )
        return await self._frame.show(
            request,
            "ask.html",
            here="/settings",
            title=title,
            question=question,
            verb=text("Change it"),
            path="/setting",
            back=link("/setting", key=key),
            fields=[("key", key), ("value", value)],
            grave=False,
        )


def _hidden(topic: Mapping[str, Any], queues: int) -> int:
    """The messages that nobody finds any more in a topic that gets so many queues."""
    if _has_queues(topic, queues):
        return 0
    return sum(row["messages"] for row in topic["queues"] if row["queue"] >= queues)


def _has_queues(topic: Mapping[str, Any], queues: int) -> bool:
    """Whether a topic has so many queues to write on each broker."""
    return all(row["write_queues"] == queues for row in topic["brokers"])


def _whole(form: Fields, name: str) -> int:
    """A whole number of a form. Raises: Failure."""
    value = form[name]
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise Failure(400, "usage", "{name} is a whole number", {"name": name})
    return int(value)


def _position(query: Fields) -> str:
    """Where offsets go, as the command takes it. Raises: Failure."""
    where, at = query["where"], query["at"].strip()
    if where in ("first", "last"):
        return where
    if not at:
        raise Failure(400, "usage", "say which time or offset")
    return f"offset:{at}" if where == "offset" else formats.zoned(at)


def _movement(moves: Sequence[Mapping[str, Any]], text: Callable[..., str], *, done: bool) -> str:
    """The meaning of moved offsets: messages that come again, and messages that never come."""
    back, ahead, queues = states.moved(moves)
    text_n, parts = counting(text), []
    if back and done:
        parts.append(
            text_n("{n} message is delivered again.", "{n} messages are delivered again.", back)
        )
    elif back:
        parts.append(
            text_n(
                "{n} message will be delivered again.",
                "{n} messages will be delivered again.",
                back,
            )
        )
    if ahead and done:
        parts.append(text_n("{n} message is skipped.", "{n} messages are skipped.", ahead))
    elif ahead:
        parts.append(
            text_n(
                "{n} message will be skipped: the group never gets it.",
                "{n} messages will be skipped: the group never gets them.",
                ahead,
            )
        )
    if not parts:
        parts.append(text_n("{n} queue gets an offset.", "{n} queues get an offset.", queues))
    return " ".join(parts)
