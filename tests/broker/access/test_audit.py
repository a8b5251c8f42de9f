"""The lines of the audit log that the console keeps."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

import pytest

from aerobee.broker.access.audit import NEWEST, NEWEST_REFUSED, Audit
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.group import UpdateGroupForbidden
from tests.broker.desk import open_desk

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.server.caller import Caller
    from tests.broker.desk import Desk

FORBID = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN


async def forbid(desk: Desk, readable: bool | None) -> None:
    command = Command(code=FORBID, language="JAVA", version=479)
    command.ext = {"group": "g", "topic": "t"}
    if readable is not None:
        command.ext["readable"] = str(readable).lower()
    header = UpdateGroupForbidden(group="g", topic="t", readable=readable)
    outcome = desk.handlers[FORBID](header, command, desk.peer)
    if inspect.isawaitable(outcome):
        await outcome


@pytest.mark.trio
async def test_a_question_whether_a_group_may_read_is_no_change(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        lines = desk.broker.audit.newest
        await forbid(desk, None)
        assert not lines
        await forbid(desk, False)
        assert [line["changes"] for line in lines] == ["g/t: readable true -> false"]


@pytest.mark.trio
async def test_what_is_refused_pushes_out_no_change(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        audit = desk.broker.audit
        await forbid(desk, False)
        refused = Answer(int(ResponseCode.NO_PERMISSION))
        check = audit.behind(lambda command, connection: refused)
        command = Command(code=RequestCode.DELETE_TOPIC_IN_BROKER, language="JAVA", version=479)
        for _ in range(NEWEST + 1):
            check(command, cast("Caller", desk.peer))
        assert len(audit.lines) == 1 + NEWEST_REFUSED
        assert [line["request"] for line in audit.lines].count(FORBID.name) == 1


def test_the_lines_of_both_are_in_the_order_of_their_times() -> None:
    audit = Audit(every=lambda: False)
    line = {"request": "a", "changes": None}
    audit.newest.append({"at_ms": 6, **line})
    audit.newest_refused.extend({"at_ms": at, **line} for at in (5, 7))
    assert [line["at_ms"] for line in audit.lines] == [5, 6, 7]
