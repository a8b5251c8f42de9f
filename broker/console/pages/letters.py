"""Pages on which dead letters are sent again, edited or dropped, with a result for each.

All of them are one order; one that fails leaves the others as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages import formats, states
from aerobee.broker.console.pages.frame import Fields, form_of, viewer_of
from aerobee.broker.console.pages.links import link
from aerobee.broker.console.requests import BODY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.looks.viewers import Viewer
    from aerobee.broker.console.pages.frame import Frame

LETTERS_MAX: Final = 100
"""The most letters of one order: as many as a page shows."""
FIELD_MAX: Final = BODY_MAX * 3 // 4
"""Bytes of a field as a form sends it."""
COMMANDS: Final = {"redrive": "dlq.redrive", "drop": "dlq.drop"}


class Letters:
    """The pages on which dead letters are dealt with."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._console = frame.console

    async def resend(self, request: Request) -> Response:
        """Send the chosen letters again, or drop them."""
        text = self._frame.translator(request)
        fields = await form_of(request)
        form = Fields(dict(fields))
        group, what = form.needed("group"), form["what"]
        places = [value for name, value in fields if name == "id"]
        if what not in COMMANDS:
            raise Failure(400, "usage", "say what to do with the letters")
        if not 0 < len(places) <= LETTERS_MAX:
            raise Failure(400, "usage", "choose 1 to {most} letters", {"most": LETTERS_MAX})
        if form["confirmed"]:
            return await self._do(request, group, what, places)
        arguments = {"group": group, "id": places}
        outcome = await self._console.call(viewer_of(request), COMMANDS[what], arguments)
        rows = outcome.value or []
        return await self._frame.show(
            request,
            "letters_ask.html",
            here="/dead",
            group=group,
            what=what,
            rows=rows,
            fields=fields,
            question=_question(what, rows, text),
        )

    async def _do(self, request: Request, group: str, what: str, places: Sequence[str]) -> Response:
        text = self._frame.translator(request)
        arguments = {"group": group, "id": places}
        outcome = await self._console.call(
            viewer_of(request), COMMANDS[what], arguments, confirmed=True
        )
        problems = problems_of(what, outcome.value)
        gone = text("it is no dead letter any more, or was sent again before")
        results = [{"place": place, "problem": problems.get(place, gone)} for place in places]
        failed = sum(1 for row in results if row["problem"])
        return await self._frame.show(
            request,
            "letters_done.html",
            here="/dead",
            group=group,
            results=results,
            failed=failed,
            done=len(results) - failed,
        )

    async def edit(self, request: Request) -> Response:
        """Send one letter again with another body, tag or keys."""
        text, viewer = self._frame.translator(request), viewer_of(request)
        fields = await form_of(request) if request.method == "POST" else []
        form = Fields(dict(fields) if fields else request.query_params)
        group, identity = form.needed("group"), form.needed("id")
        back = link("/letters", group=group)
        if request.method == "POST" and form["confirmed"]:
            before = await self._text(viewer, identity) if form["body"] else None
            outcome = await self._console.call(
                viewer, "dlq.edit", _edited(group, identity, form, before), confirmed=True
            )
            result = text("A copy is sent; the letter counts as done.")
            return await self._frame.done(
                request,
                here="/dead",
                title=text("Edit a dead letter"),
                result=result,
                back=back,
                notes=outcome.notes,
            )
        if request.method == "POST":
            question = text(
                "A copy of the letter with these changes is sent to {topic}, and its group handles "
                "it. The letter counts as done.",
                topic=form["to_topic"] or text("the topic that it came from"),
            )
            return await self._frame.show(
                request,
                "ask.html",
                here="/dead",
                title=text("Edit a dead letter"),
                question=question,
                verb=text("Send the copy"),
                path="/letters/edit",
                back=back,
                fields=fields,
                grave=False,
            )
        message = await self._letter(viewer, identity)
        return await self._frame.show(
            request,
            "letter_edit.html",
            here="/dead",
            group=group,
            letter_id=identity,
            letter=message,
            body=_text_of(message, viewer),
        )

    async def _letter(self, viewer: Viewer, identity: str) -> Mapping[str, Any]:
        outcome = await self._console.call(viewer, "message.get", {"identity": identity})
        letter: Mapping[str, Any] = outcome.value
        return letter

    async def _text(self, viewer: Viewer, identity: str) -> str | None:
        return _text_of(await self._letter(viewer, identity), viewer)


def _edited(group: str, identity: str, form: Fields, before: str | None) -> Mapping[str, Any]:
    """The arguments of the command: a body that is left empty, or as it was, stays so. `before`:
    the text that the field had.
    """
    arguments: dict[str, Any] = {"group": group, "identity": identity, "tag": form["tag"]}
    body = _plain_lines(form["body"])
    if body and (before is None or body != _plain_lines(before)):
        arguments["body"] = body.replace("\n", _line_end(before or ""))
    if form["key"]:
        arguments["key"] = form["key"].split()
    if form["to_topic"]:
        arguments["to_topic"] = form["to_topic"].strip()
    return arguments


def _plain_lines(text: str) -> str:
    """A text with the ends of lines as one sign: browsers send them as two, whatever they were."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line_end(text: str) -> str:
    """The end of the lines of a text."""
    return "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"


def _text_of(letter: Mapping[str, Any], viewer: Viewer) -> str | None:
    """The body as the text of a field; None: it is no text, or does not come back from a form as it
    was.
    """
    body = states.body_of(letter) if viewer.may_read_bodies else None
    if body is None or b"\0" in body or len(body) > FIELD_MAX:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if len(quote_plus(text)) <= FIELD_MAX else None


def problems_of(what: str, value: Any) -> dict[str, str]:
    """The problem with each letter that a command found, by its place; empty: none."""
    rows = (value or {}).get("letters", ()) if what == "redrive" else value or ()
    return {row["place"]: row.get("problem") or "" for row in rows}


def _question(what: str, rows: Sequence[Mapping[str, Any]], text: Callable[..., str]) -> str:
    """The consequence, in words."""
    count = formats.number(len(rows))
    if what == "drop":
        return text(
            "{n} dead letters count as done and are never sent again. They stay in their topic "
            "until they expire.",
            n=count,
        )
    topics = ", ".join(sorted({str(row["to"]) for row in rows if row.get("to")}))
    return text(
        "{n} dead letters are sent again, to {topics}: every group that reads there gets them.",
        n=count,
        topics=topics or text("topics that are not known"),
    )
