"""Where the master of a slave is, and what it says of its log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.replication.master_calls import (
    MasterAddress,
    MasterRefused,
    NoAnswer,
    address_of,
    answered,
    asked,
    log_of,
    other_group,
    pages,
)
from aerobee.broker.replication.tails import MasterLog, Tail
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.query import ViewMessageById
from aerobee.remoting.wire.headers.topic import GetAllTopicConfig
from tests.broker.desk import open_desk
from tests.broker.replication.pairs import Link

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.header import Header


@pytest.mark.parametrize(
    ("configured", "ha_address", "address", "master"),
    [
        ("", None, None, None),
        ("", "a:10912", None, None),
        ("", "a:10912", "a:10911", MasterAddress("a:10911", "a:10912")),
        ("b:20912", None, None, MasterAddress("b:20911", "b:20912")),
        ("b:20912", "a:10912", "a:10911", MasterAddress("a:10911", "b:20912")),
        ("[::1]:20912", None, None, MasterAddress("[::1]:20911", "[::1]:20912")),
    ],
)
def test_a_master_is_where_the_settings_say_else_where_name_servers_say(
    configured: str, ha_address: str | None, address: str | None, master: MasterAddress | None
) -> None:
    assert address_of(configured, ha_address, address) == master


@pytest.mark.trio
async def test_a_master_tells_its_ends_and_shows_the_record(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        link = Link(desk)
        assert await log_of(link, Tail(0)) == MasterLog(0, 0)
        await desk.send(body=b"one")
        first = desk.store.commit_log.max_offset
        await desk.send(body=b"two")
        last = desk.store.last_record()
        assert last is not None
        assert last[0] == first
        end = desk.store.commit_log.max_offset
        assert await log_of(link, Tail(end, *last)) == MasterLog(0, end, last[1])
        assert await log_of(link, Tail(end, first + 1, b"?")) == MasterLog(0, end)


@pytest.mark.trio
async def test_an_error_of_the_master_is_told_with_its_code(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        with pytest.raises(MasterRefused, match=r"VIEW_MESSAGE_BY_ID was answered with 1: can not"):
            await answered(Link(desk), ViewMessageById(offset=5))


class Mute(Link):
    """A broker that takes connections, and answers no request."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        await trio.sleep_forever()
        raise AssertionError(code)


@pytest.mark.trio
async def test_a_question_is_answered_or_says_why_not(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        link = Link(desk)
        assert await asked(link.connect, "a:1", log_of) == MasterLog(0, 0)
        with pytest.raises(NoAnswer, match=r"VIEW_MESSAGE_BY_ID was answered with 1: can not"):
            await asked(link.connect, "a:1", partial(answered, header=ViewMessageById(offset=5)))
        link.down = True
        with pytest.raises(NoAnswer, match=r"^a:1: refused$"):
            await asked(link.connect, "a:1", log_of)
        began = trio.current_time()
        with pytest.raises(NoAnswer, match=r"^no answer in time$"):
            await asked(Mute(desk).connect, "a:1", log_of, 3.0)
        assert trio.current_time() == pytest.approx(began + 3.0)


class TwoPages(Link):
    """A master whose table has two pages and no version."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        assert isinstance(header, GetAllTopicConfig)
        name = b"b" if header.topic_seq else b"a"
        return Command(
            code=0, ext={"totalTopicNum": "2"}, body=b'{"topicConfigTable":{"%b":{}}}' % name
        )


@pytest.mark.trio
async def test_a_table_without_a_version_is_copied(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        document = await pages(
            TwoPages(desk),
            "topicConfigTable",
            lambda first, version, most: GetAllTopicConfig(
                topic_seq=first, data_version=version, max_topic_num=most
            ),
            "totalTopicNum",
        )
    assert document == {"topicConfigTable": {"a": {}, "b": {}}}


class NoViews(Link):
    """A master that shows no record, to this account or at this moment."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        if code == RequestCode.VIEW_MESSAGE_BY_ID:
            return Command(code=16, remark="no permission")
        return await super().call(code, header, body, timeout_s)


@pytest.mark.trio
async def test_a_master_that_shows_no_record_does_not_differ(tmp_path: Path) -> None:
    """Else its slave would stop for good."""
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send(body=b"one")
        last = desk.store.last_record()
        assert last is not None
        tail = Tail(desk.store.commit_log.max_offset, *last)
        with pytest.raises(MasterRefused, match="VIEW_MESSAGE_BY_ID was answered with 16: no perm"):
            await log_of(NoViews(desk), tail)


# ── Whose master it is ──

OWN = BrokerOptions(broker_name="a", broker_cluster_name="C")


@pytest.mark.parametrize(
    "settings",
    [
        b"brokerName=a\nbrokerClusterName=C\nbrokerId=0\n",
        b" brokerName = a \r\nbrokerClusterName=C\r\n",
        b"",
        b"\xff\xfe\nno pair\n=\n",
        b"brokerName=a",
    ],
)
def test_the_own_group_and_what_says_no_names_pass(settings: bytes) -> None:
    assert other_group(settings, OWN) == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (b"brokerName=b\nbrokerClusterName=C", "brokerName is b there and a here."),
        (b"brokerName=a\nbrokerClusterName=D", "brokerClusterName is D there and C here."),
        (
            b"brokerName=\nbrokerClusterName=D",
            "brokerClusterName is D there and C here, brokerName is  there and a here.",
        ),
    ],
)
def test_another_one_is_named(settings: bytes, said: str) -> None:
    problem = other_group(settings, OWN)
    assert said in problem
    assert "Set haMasterAddress" in problem


def test_a_long_name_is_cut() -> None:
    assert len(other_group(b"brokerName=" + b"x" * 100_000, OWN)) < 500
