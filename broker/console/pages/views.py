"""Pages that show: each asks the console, and fills one template."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse, Response

from aerobee.broker.console.lists import arranged, number, query_of
from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.operations import MESSAGES_MAX
from aerobee.broker.console.pages import formats, states
from aerobee.broker.console.pages.frame import Fields, viewer_of
from aerobee.broker.console.pages.letters import LETTERS_MAX
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request

    from aerobee.broker.console.lists import Page
    from aerobee.broker.console.pages.frame import Frame
    from aerobee.broker.console.pages.rates import Rates

BEHIND_SHOWN: Final = 6
UNTOLD: Final = frozenset({"broker_unreachable", "broker_forbidden", "broker_failing"})
"""Findings with which the lag of a group is not known."""
FINDINGS_SHOWN: Final = 100
"""Findings of a page, the severest; the API gives all."""
FOUND: Final = 32
"""Messages of a search that names no number."""
TAIL: Final = 50
"""New messages that are shown of one tick; of more the newest."""
ID_MAX_CHARACTERS: Final = 300
TIMES: Final = ("since", "until")
TOPIC_COLUMNS: Final = ("in_per_s", "delayed", "half")


class Views:
    """The pages that change nothing."""

    def __init__(self, frame: Frame, rates: Rates) -> None:
        self._frame = frame
        self._console = frame.console
        self._rates = rates

    async def overview(self, request: Request) -> Response:
        """Whether all is well, and if not, what to do."""
        viewer = viewer_of(request)
        snapshot = await self._console.snapshot(viewer)
        figures, _ = await self._console.record(viewer, "overview")
        listed, _ = await self._console.rows(viewer, "findings")
        findings = await self._console.beside(states.linked, listed[:FINDINGS_SHOWN])
        rows, _ = await self._console.rows(viewer, "groups")
        groups = await self._console.beside(_behind, rows)
        return await self._frame.show(
            request,
            "overview.html",
            here="/",
            at_ms=snapshot.at_ms,
            findings=findings,
            found=len(listed),
            worst=states.worst(findings),
            figures=figures,
            brokers=states.brokers_of(snapshot.brokers),
            chart=self._rates.chart(viewer.key),
            behind=len(groups),
            groups=groups[:BEHIND_SHOWN],
        )

    async def groups(self, request: Request) -> Response:
        """All groups, those furthest behind first."""
        query = Fields(request.query_params)
        groups, _ = await self._console.rows(viewer_of(request), "groups")

        def page() -> Page:
            rows = states.stated(
                row
                for row in groups
                if not row["system"] and (row["lag_at_least"] or not query["behind"])
            )
            rows.sort(key=lambda row: (-(row["lag_s"] or 0), -row["lag_at_least"], row["group"]))
            return arranged(rows, query_of(query))

        shown = await self._console.beside(page)
        return await self._frame.show(request, "groups.html", here="/groups", page=shown)

    async def group(self, request: Request) -> Response:
        """One group: why it stands, and who has which queue."""
        name = Fields(request.query_params).needed("name")
        viewer = viewer_of(request)
        diagnosis = (await self._console.call(viewer, "group.doctor", {"name": name})).value
        for queue in diagnosis["queues"]:
            queue["lag"] = max(0, queue["end"] - queue["consumer_offset"])
        snapshot = await self._console.snapshot(viewer)
        row = _row_of(snapshot.groups, "group", name)
        state = states.State("unknown", "not known") if row is None else states.group_state(row)
        waits = [
            queue["waiting_s"]
            for queue in diagnosis["queues"]
            if queue["lag"] and queue["waiting_s"] is not None
        ]
        return await self._frame.show(
            request,
            "group.html",
            here="/groups",
            name=name,
            severity=state.severity,
            state=state.word,
            enabled=row is None or row["enabled"] is not False,
            diagnosis=diagnosis,
            lag=None if UNTOLD.intersection(_kinds(diagnosis)) else diagnosis["lag"],
            findings=states.linked(diagnosis["findings"], on_group=name),
            oldest_s=max(waits, default=None if diagnosis["lag"] else 0),
            topics=sorted({queue["queue"]["topic"] for queue in diagnosis["queues"]}),
        )

    async def topics(self, request: Request) -> Response:
        """All topics."""
        query = Fields(request.query_params)
        topics, _ = await self._console.rows(viewer_of(request), "topics")

        def page() -> Page:
            rows = [row for row in topics if query["system"] or row["kind"] == "normal"]
            return arranged(rows, query_of(query))

        shown = await self._console.beside(page)
        return await self._frame.show(request, "topics.html", here="/topics", page=shown)

    async def topic(self, request: Request) -> Response:
        """One topic: its queues, and the groups that read it."""
        name = Fields(request.query_params).needed("name")
        viewer = viewer_of(request)
        topic = (await self._console.call(viewer, "topic.describe", {"name": name})).value
        snapshot = await self._console.snapshot(viewer)
        groups, _ = await self._console.rows(viewer, "groups")
        names = frozenset(topic["groups"])

        def reading() -> list[dict[str, Any]]:
            return states.stated(row for row in groups if row["group"] in names)

        readers = await self._console.beside(reading)
        row = _row_of(snapshot.topics, "topic", name) or dict.fromkeys(TOPIC_COLUMNS)
        return await self._frame.show(
            request,
            "topic.html",
            here="/topics",
            name=name,
            topic=topic,
            row=row,
            groups=readers,
            most=max((queue["messages"] for queue in topic["queues"]), default=0),
        )

    # ── Messages ──

    async def messages(self, request: Request) -> Response:
        """A search for messages, bounded; the next one goes on where this one ended."""
        query = Fields(request.query_params)
        viewer = viewer_of(request)
        if query["id"]:
            where = link("/message", id=query["id"], topic=query["topic"])
            return RedirectResponse(where, 303)
        rows: list[dict[str, Any]] | None = None
        failure, most, notes = "", 0, ""
        if query["topic"]:
            most = _count(query["max"])
            try:
                rows, notes = await self._found(request, query, most)
            except Failure as error:
                failure = self._frame.said(request, error)
        topics, _ = await self._console.rows(viewer, "topics")
        text = self._frame.translator(request)
        return await self._frame.show(
            request,
            "messages.html",
            here="/messages",
            topic_names=await self._console.beside(
                states.proposed, topics, "topic", query["topic"]
            ),
            rows=rows,
            failure=failure,
            scanned=_scanned(query, text),
            more=_further(query, rows, 0 if notes else most),
        )

    async def _found(
        self, request: Request, query: Fields, most: int
    ) -> tuple[list[dict[str, Any]], str]:
        """Messages, and why these may not be all. Raises: Failure."""
        arguments = {
            name: query[name]
            for name in ("topic", "key", "tag", "since", "until", "after")
            if query[name]
        }
        arguments |= {name: formats.zoned(arguments[name]) for name in TIMES if name in arguments}
        outcome = await self._console.call(
            viewer_of(request), "message.find", {**arguments, "max": most}
        )
        return self.message_rows(request, outcome.value), " ".join(outcome.notes)

    def message_rows(
        self, request: Request, messages: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Messages as they stand in a list."""
        may_read = viewer_of(request).may_read_bodies
        return [
            {
                **message,
                "content": states.glance(message, may_read=may_read),
                "path": link("/message", id=states.place_of(message)),
            }
            for message in messages
        ]

    async def message(self, request: Request) -> Response:
        """One message: its content, and its life."""
        query = Fields(request.query_params)
        identity, topic = query.needed("id")[:ID_MAX_CHARACTERS], query["topic"]
        viewer = viewer_of(request)
        place = {"topic": topic} if topic else {}
        message = (
            await self._console.call(viewer, "message.get", {"identity": identity, **place})
        ).value
        history = (
            await self._console.call(
                viewer, "why", {"message_id": states.place_of(message), "topic": message["topic"]}
            )
        ).value
        state = states.message_state(history)
        return await self._frame.show(
            request,
            "message.html",
            here="/messages",
            message=message,
            history=history,
            severity=state.severity,
            state=state.word,
            life=states.life_of(history),
            groups=[
                {**group, "severity": known.severity, "label": known.word}
                for group in history["groups"]
                for known in [states.PROGRESS.get(group["state"], states.PROGRESS["unknown"])]
            ],
            properties=sorted(message["properties"].items()),
            content=states.content_of(message, may_read=viewer.may_read_bodies),
        )

    async def tail(self, request: Request) -> Response:
        """The newest messages of a topic, and then those that come."""
        topic = Fields(request.query_params).needed("topic")
        rows = await self.newest(request, topic)
        return await self._frame.show(
            request, "tail.html", here="/topics", topic=topic, rows=rows[::-1]
        )

    async def newest(self, request: Request, topic: str) -> list[dict[str, Any]]:
        """The newest messages of a topic, the oldest of them first. Raises: Failure."""
        arguments = {"topic": topic, "count": TAIL}
        outcome = await self._console.call(viewer_of(request), "message.tail", arguments)
        return self.message_rows(request, outcome.value or [])

    # ── Dead letters ──

    async def dead(self, request: Request) -> Response:
        """How many dead letters each group has."""
        groups, _ = await self._console.rows(viewer_of(request), "dlq")
        rows = sorted(groups, key=lambda row: -(row["letters"] or 0))
        return await self._frame.show(
            request,
            "dead.html",
            here="/dead",
            page=await self._page(request, rows),
            most=max((row["letters"] or 0 for row in rows), default=0),
        )

    async def letters(self, request: Request) -> Response:
        """The dead letters of one group."""
        query = Fields(request.query_params)
        group = query.needed("group")
        arguments: dict[str, Any] = {"group": group, "max": LETTERS_MAX}
        if query["tag"]:
            arguments["tag"] = [query["tag"]]
        if query["key"]:
            arguments["key"] = query["key"]
        if query["open"]:
            arguments["open"] = True
        outcome = await self._console.call(viewer_of(request), "dlq.list", arguments)
        return await self._frame.show(
            request,
            "letters.html",
            here="/dead",
            group=group,
            letters=outcome.value or [],
            most=LETTERS_MAX,
        )

    # ── Clients ──

    async def clients(self, request: Request) -> Response:
        """All clients that are connected, the busiest first."""
        clients, _ = await self._console.rows(viewer_of(request), "clients")

        def page() -> Page:
            rows = sorted(clients, key=lambda row: -(row["requests_per_s"] or 0))
            return arranged(rows, query_of(request.query_params))

        shown = await self._console.beside(page)
        return await self._frame.show(request, "clients.html", here="/clients", page=shown)

    async def client(self, request: Request) -> Response:
        """One client."""
        identity = Fields(request.query_params).needed("id")
        clients, _ = await self._console.rows(viewer_of(request), "clients")
        rows = [row for row in clients if row["client"] == identity]
        return await self._frame.show(
            request, "client.html", here="/clients", client_id=identity, rows=rows
        )

    # ── The broker ──

    async def replication(self, request: Request) -> Response:
        """Masters, slaves, and the store of this broker."""
        viewer = viewer_of(request)
        notes: list[str] = []
        members: list[Any] = []
        store: Any = None
        try:
            outcome = await self._console.call(viewer, "ha.status", {})
            members, notes = outcome.value or [], [*outcome.notes]
        except Failure as error:
            notes = [self._frame.said(request, error)]
        if self._console.own is not None:
            try:
                store, _ = await self._console.record(viewer, "store")
            except Failure as error:
                notes.append(self._frame.said(request, error))
        return await self._frame.show(
            request,
            "replication.html",
            here="/replication",
            members=states.with_masters(members),
            notes=notes,
            store=store,
        )

    async def settings(self, request: Request) -> Response:
        """Every setting: its value, where that comes from, and whether it can be changed."""
        query = Fields(request.query_params)
        rows, _ = await self._console.rows(viewer_of(request), "settings")
        if query["changed"]:
            rows = [row for row in rows if row["value"] != row["default"]]
        return await self._frame.show(
            request, "settings.html", here="/settings", page=await self._page(request, rows)
        )

    async def audit(self, request: Request) -> Response:
        """The audit: changes, and the users who made them."""
        rows, _ = await self._console.rows(viewer_of(request), "audit")
        return await self._frame.show(
            request, "audit.html", here="/audit", page=await self._page(request, rows)
        )

    async def _page(self, request: Request, rows: Sequence[Mapping[str, Any]]) -> Page:
        """The part of a list that a request is for. Raises: Failure."""
        return await self._console.beside(arranged, rows, query_of(request.query_params))

    async def users(self, request: Request) -> Response:
        """Users, and what they may do."""
        viewer = viewer_of(request)
        failure = ""
        users: list[Any] = []
        rights: list[Any] = []
        try:
            users = (await self._console.call(viewer, "users.list", {})).value or []
            rights = (await self._console.call(viewer, "acl.list", {})).value or []
        except Failure as error:
            failure = self._frame.said(request, error)
        return await self._frame.show(
            request,
            "users.html",
            here="/users",
            failure=failure,
            users=users,
            rights=rights,
            user_names=sorted({row["name"] for row in users}),
        )


def _behind(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups that are behind, with their states, those furthest behind first."""
    groups = states.stated(row for row in rows if row["lag_at_least"] and not row["system"])
    groups.sort(key=lambda row: (-(row["lag_s"] or 0), -row["lag_at_least"]))
    return groups


def _kinds(diagnosis: Mapping[str, Any]) -> set[str]:
    return {finding["kind"] for finding in diagnosis["findings"]}


def _row_of(rows: Sequence[Mapping[str, Any]], column: str, name: str) -> Mapping[str, Any] | None:
    return next((row for row in rows if row[column] == name), None)


def _count(text: str) -> int:
    """A number of messages. Raises: Failure."""
    return number({"max": text}, "max", 1, MESSAGES_MAX, default=FOUND)


def _scanned(query: Fields, text: Any) -> str:
    """The text about the messages that a search has looked at."""
    since, until = query["since"], query["until"]
    if query["key"]:
        where = text("by the index of keys")
    else:
        where = text("queue by queue")
    if since or until:
        begin, end = since or text("the oldest"), until or text("now")
        return f"{where}, {text('stored from {begin} to {end}', begin=begin, end=end)}"
    return f"{where}, {text('all that is kept')}"


def _further(query: Fields, rows: Sequence[Mapping[str, Any]] | None, most: int) -> str:
    """The search that goes on behind the last message; empty where it has found all."""
    if not rows or len(rows) < most:
        return ""
    kept = {name: query[name] for name in ("topic", "key", "tag", "max")}
    if query["key"]:
        # By key the newest come first.
        until, most = _until(query["until"], [row["stored_at"] for row in rows], most)
        return link("/messages", **kept | {"max": most}, since=query["since"], until=until)
    times = {"since": query["since"], "until": query["until"]}
    return link("/messages", **kept, **times, after=states.place_of(rows[-1]))


def _until(before: str, stored: Sequence[str], most: int) -> tuple[str, int]:
    """The time up to which a search by key goes on, and its number of messages.

    The messages of a millisecond are told by nothing, so those of the oldest one come again. Where
    a page has no others, the next one is as large as can be, and then one goes on in front of them.
    Brokers of RocketMQ tell a second in place of a millisecond.
    """
    oldest = formats.iso(min(stored))
    if oldest != before:
        return oldest, most
    if most < MESSAGES_MAX:
        return oldest, MESSAGES_MAX
    exact = formats.iso(max(stored)) == oldest
    step = timedelta(milliseconds=1) if exact else timedelta(seconds=1)
    return formats.iso(datetime.fromisoformat(oldest) - step), most
