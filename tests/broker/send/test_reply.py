"""Request-reply: pushed to who asked, kept beside that, and the replier told the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.consumers.clients import Client
from aerobee.remoting.errors import CallTimedOut
from aerobee.remoting.server.routes import PendingAnswer
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import SendReplyMessage, SendReplyMessageV2
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import read
from tests.broker.desk import Desk, body_of, open_desk, said, send_header
from tests.broker.peers import Peer, request

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.command import Command

pytestmark = pytest.mark.trio

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {
    "CORRELATION_ID": "c-1",
    "REPLY_TO_CLIENT": "asker",
    "TTL": "3000",
    "MSG_TYPE": "reply",
}


def asking(desk: Desk, client_id: str = "asker") -> Peer:
    """A connected producer with that client id."""
    peer = Peer()
    desk.clients.register_producer("p", Client(peer, client_id, "JAVA", 479, 0))
    return peer


async def reply(
    desk: Desk, cls: type[Any] = SendReplyMessageV2, body: bytes = b"42", **properties: str
) -> Answer:
    text = encode(PROPERTIES | properties)
    return await desk.ask(send_header(REPLY_TOPIC, cls, properties=text), body)


@pytest.mark.parametrize("cls", [SendReplyMessage, SendReplyMessageV2])
async def test_the_asking_client_gets_the_reply_as_it_came(tmp_path: Path, cls: type[Any]) -> None:
    async with open_desk(tmp_path) as desk:
        asker = asking(desk)
        answer = await reply(desk, cls)
        assert (answer.code, answer.remark) == (Code.SUCCESS, None)
        ((code, pushed),) = asker.told
        assert code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert asker.bodies == [b"42"]
        properties = decode(pushed.properties)
        assert properties.pop("PUSH_REPLY_TIME").isdigit()
        assert properties == PROPERTIES
        assert (pushed.topic, pushed.born_host) == (REPLY_TOPIC, desk.peer.address)
        assert pushed.store_host == desk.address


async def test_a_reply_is_kept_in_its_topic_without_what_was_added_for_the_push(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        asking(desk)
        answer = await reply(desk)
        pulled = await desk.pull(REPLY_TOPIC)
        record = read(body_of(pulled), 0)
        assert bytes(record.body) == b"42"
        assert decode(record.properties) == PROPERTIES
        fields = said(answer)
        assert fields["msgId"].endswith(f"{record.physical_offset:016X}")
        assert fields["queueOffset"] == str(record.queue_offset)


async def test_with_the_switch_off_nothing_is_kept(tmp_path: Path) -> None:
    async with open_desk(tmp_path, store_reply_message_enable=False) as desk:
        asker = asking(desk)
        answer = await reply(desk)
        assert len(asker.told) == 1
        assert said(answer)["msgId"] == "0"
        assert desk.store.commit_log.max_offset == 0


async def test_nobody_there_to_hear_it_is_said_and_the_reply_is_kept(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        answer = await reply(desk)
        assert answer.code == Code.SYSTEM_ERROR
        assert answer.remark == "push reply message fail, channel of <asker> not found."
        assert (await desk.pull(REPLY_TOPIC)).code == Code.SUCCESS


async def test_a_reply_to_nobody_is_said_to_be_one(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        answer = await desk.ask(send_header(REPLY_TOPIC, SendReplyMessageV2), b"42")
        assert answer.code == Code.SYSTEM_ERROR
        assert "REPLY_TO_CLIENT" in (answer.remark or "")


async def no() -> Command:
    said = request(1)
    said.remark = "reply message expired"
    return said


async def silence() -> Command:
    raise CallTimedOut("127.0.0.1:50000 did not answer request 326 within 10 s")


@pytest.mark.parametrize(("replies", "why"), [(no, "expired"), (silence, "did not answer")])
async def test_a_push_that_fails_is_told_with_its_reason(
    tmp_path: Path, replies: Any, why: str
) -> None:
    async with open_desk(tmp_path) as desk:
        asking(desk).replies = replies
        answer = await reply(desk)
        assert answer.code == Code.SYSTEM_ERROR
        assert "push reply message to asker fail" in (answer.remark or "")
        assert why in (answer.remark or "")


async def test_a_requester_that_hangs_takes_no_place_of_others(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        asking(desk)
        header = send_header(REPLY_TOPIC, SendReplyMessageV2, properties=encode(PROPERTIES))
        outcome = desk.begin(header, b"42")
        assert isinstance(outcome, PendingAnswer)
        answer = await outcome.work
        assert isinstance(answer, Answer)
        assert answer.code == Code.SUCCESS


async def test_a_topic_that_is_deleted_during_the_push_does_not_come_back(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("mine")

        async def deletes() -> Command:
            assert (await desk.ask(DeleteTopicInBroker(topic="mine"))).code == 0
            return request(0)

        asking(desk).replies = deletes
        header = send_header("mine", SendReplyMessageV2, properties=encode(PROPERTIES))
        assert (await desk.ask(header, b"42")).code == Code.SUCCESS
        assert not any(topic == "mine" for topic, _ in desk.store.queues.table)


async def test_a_full_disk_does_not_stop_the_push(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        asker = asking(desk)
        desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
        answer = await reply(desk)
        assert (answer.code, said(answer)["msgId"]) == (Code.SUCCESS, "0")
        assert len(asker.told) == 1


async def test_the_newest_connection_of_a_client_gets_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        old, new = asking(desk), asking(desk)
        await reply(desk)
        assert (len(old.told), len(new.told)) == (0, 1)
        desk.clients.leave_all(new.id)
        await reply(desk)
        assert len(old.told) == 1
        desk.clients.leave_all(old.id)
        assert (await reply(desk)).code == Code.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION),
        ({"topic": "../x"}, Code.INVALID_PARAMETER),
        ({"queue_id": 99}, Code.INVALID_PARAMETER),
    ],
    ids=str,
)
async def test_the_checks_of_a_send_come_first(
    tmp_path: Path, fields: dict[str, Any], code: int
) -> None:
    async with open_desk(tmp_path) as desk:
        asker = asking(desk)
        given = {"topic": REPLY_TOPIC, "properties": encode(PROPERTIES), **fields}
        header = send_header(cls=SendReplyMessageV2, **given)
        assert (await desk.ask(header, b"42")).code == code
        assert asker.told == []
