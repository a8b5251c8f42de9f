"""What administrators ask of consumers by way of the broker, with consumers that are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.errors import GroupNotExist, Refusal
from aerobee.remoting.errors import CallTimedOut, ChannelClosed
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.admin import (
    CloseClient,
    CloseClientResponse,
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
)
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.store.format.message_id import offset_id
from tests.broker.desk import body_of, open_desk
from tests.broker.peers import request

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.command import Command
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

INFO = b'{"properties":{"PROP_CONSUMEORDERLY":"false"},"odd":{{"queueId":0}:1}}'
"""As the client wrote it, which need not be JSON."""


async def join(desk: Desk, *, version: int = 479) -> None:
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [{"groupName": "g"}]}
    assert (await desk.ask(Heartbeat(), json.dumps(body).encode())).code == Code.SUCCESS
    (client,) = desk.clients.consumers["g"].clients.values()
    client.version = version


def replies(desk: Desk, said: bytes | Exception) -> None:
    """What the client answers from now on."""

    async def reply() -> Command:
        if isinstance(said, Exception):
            raise said
        return request(0, said)

    desk.peer.replies = reply


async def test_the_answer_of_the_client_is_passed_on_untouched(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await join(desk)
        replies(desk, INFO)
        asked = GetConsumerRunningInfo(consumer_group="g", client_id="c", jstack_enable=True)
        answer = await desk.ask(asked)
        assert (answer.code, body_of(answer)) == (Code.SUCCESS, INFO)
        assert desk.peer.told[-1] == (asked.code, asked)


async def test_a_stored_message_is_handled_by_the_client_now(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", topic_sys_flag=1)
        desk.groups.create("g", 0)
        await desk.send("t", b"paid")
        await join(desk)
        result = b'{"consumeResult":"CR_SUCCESS"}'
        replies(desk, result)
        message_id = offset_id(desk.store_host, 0)
        asked = ConsumeMessageDirectly(
            consumer_group="g", client_id="c", msg_id=message_id, topic="t"
        )
        assert body_of(await desk.ask(asked)) == result
        _, told = desk.peer.told[-1]
        assert desk.peer.bodies[-1] == bytes(desk.store.read(0) or b"")
        assert (told.broker_name, told.topic_sys_flag, told.group_sys_flag) == ("desk", 1, 0)
        for wrong in ("", "x" * 32, "0" * 31, offset_id(desk.store_host, 1 << 40)):
            asked.msg_id = wrong
            with pytest.raises(Refusal):
                await desk.ask(asked)
        asked.consumer_group = "none"
        with pytest.raises(GroupNotExist):
            await desk.ask(asked)


@pytest.mark.parametrize(
    ("problem", "code", "why"),
    [
        (CallTimedOut("it slept"), Code.CONSUME_MSG_TIMEOUT, "it slept"),
        (ChannelClosed("it went"), Code.SYSTEM_ERROR, "it went"),
    ],
)
async def test_a_client_that_does_not_answer_is_an_error(
    tmp_path: Path, problem: Exception, code: int, why: str
) -> None:
    async with open_desk(tmp_path) as desk:
        await join(desk)
        replies(desk, problem)
        with pytest.raises(Refusal, match=why) as error:
            await desk.ask(GetConsumerRunningInfo(consumer_group="g", client_id="c"))
        assert error.value.code == code


async def test_who_is_not_there_or_too_old_cannot_be_asked(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        asked: Any = GetConsumerRunningInfo(consumer_group="g", client_id="c")
        with pytest.raises(Refusal, match="The Consumer <g> <c> not online"):
            await desk.ask(asked)
        await join(desk, version=61)
        with pytest.raises(Refusal, match="too old"):
            await desk.ask(asked)


async def test_every_connection_of_a_client_is_closed_and_an_unknown_one_is_named(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        await join(desk)
        answer = desk.begin(CloseClient(client_id="nobody"))
        assert answer.code == Code.SYSTEM_ERROR
        assert "no client with the id nobody" in answer.remark
        answer = desk.begin(CloseClient(client_id="c"))
        assert (answer.code, answer.header) == (Code.SUCCESS, CloseClientResponse(closed=1))
        assert answer.changes == "c: connections 1 -> 0"
        assert desk.peer.closed
