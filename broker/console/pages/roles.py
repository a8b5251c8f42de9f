"""Pages on which the roles of brokers change: a switch while both run, or a promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages import formats
from aerobee.broker.console.pages.frame import Fields, form_of, given_fields, viewer_of
from aerobee.broker.console.pages.states import master_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.looks.viewers import Outcome
    from aerobee.broker.console.pages.frame import Frame


class Attempt(NamedTuple):
    """The end of an operation: done, or why not."""

    outcome: Outcome | None
    notes: Sequence[str] = ()
    failure: str = ""


class Roles:
    """The pages on which a slave becomes the master."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._console = frame.console

    async def switch(self, request: Request) -> Response:
        """Exchange the roles of a slave and its master, while both run."""
        text = self._frame.translator(request)
        form = await given_fields(request)
        address = form.needed("address")
        if request.method == "POST":
            tried = await self._try(request, "ha.switch", {"to": address})
            if tried.outcome is not None:
                value = tried.outcome.value
                result = text(
                    "{address} is the master now, and the old one follows it. Sends were refused "
                    "for {ms} ms.",
                    address=address,
                    ms=formats.number(round(value["paused_s"] * 1000)),
                )
                return await self._done(request, result, tried.outcome)
        else:
            tried = await self._try(request, "ha.switch", {"to": address, "dry_run": True})
        question = ""
        if tried.outcome is not None:
            members = await self._console.call(viewer_of(request), "ha.status", {})
            slave, master = master_of(members.value or (), address)
            question = text(
                "{address} becomes the master of {group}, and {master} becomes its slave. Sends "
                "are refused for a moment, and producers learn of the new master from the name "
                "servers, some after 30 s. No message is lost, and both keep their roles over "
                "restarts.",
                address=address,
                group=slave["broker"] if slave else text("its group"),
                master=master["address"] if master else text("the old master"),
            )
        return await self._frame.show(
            request,
            "switch.html",
            here="/replication",
            address=address,
            question=question,
            notes=tried.notes,
            failure=tried.failure,
            fields=[("address", address)],
        )

    async def promote(self, request: Request) -> Response:
        """Make a slave the master, though its master may be gone."""
        text = self._frame.translator(request)
        fields = await form_of(request) if request.method == "POST" else []
        form = Fields(dict(fields) if fields else request.query_params)
        address = form.needed("address")
        accepted = [value for name, value in fields if name == "accept"]
        arguments: dict[str, Any] = {"address": address, "accept": accepted}
        if request.method == "POST":
            tried = await self._try(request, "ha.promote", arguments)
            if tried.outcome is not None:
                result = text("{address} is the master now.", address=address)
                return await self._done(request, result, tried.outcome)
        else:
            tried = await self._try(request, "ha.promote", {**arguments, "dry_run": True})
        losses = (
            ("master-alive", text("Two masters: what the old one takes from now on is lost here.")),
            ("behind", text("What another member has and this one has not is lost.")),
            ("diverged", text("The messages in which the logs differ are lost.")),
            (
                "incomplete",
                text("What only the old master has in front of its log is out of reach."),
            ),
        )
        return await self._frame.show(
            request,
            "promote.html",
            here="/replication",
            address=address,
            notes=tried.notes,
            failure=tried.failure if request.method == "POST" or not tried.notes else "",
            losses=losses,
        )

    async def _try(self, request: Request, name: str, arguments: Mapping[str, Any]) -> Attempt:
        """Do an operation, or try it with `dry_run`."""
        confirmed = request.method == "POST"
        try:
            outcome = await self._console.call(
                viewer_of(request), name, arguments, confirmed=confirmed
            )
        except Failure as error:
            return Attempt(None, failure=self._frame.said(request, error))
        if outcome.complete:
            return Attempt(outcome, outcome.notes)
        text = self._frame.translator(request)
        return Attempt(None, outcome.notes, text("Nothing was changed."))

    async def _done(self, request: Request, result: str, outcome: Outcome) -> Response:
        return await self._frame.done(
            request,
            here="/replication",
            title=self._frame.translator(request)("Make a slave the master"),
            result=result,
            back="/replication",
            notes=outcome.notes,
        )
