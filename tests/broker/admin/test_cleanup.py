"""Cleaning by hand, over a real store of small files."""

from __future__ import annotations

from contextlib import asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.admin.cleanup import CleanupProcessor
from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.core.role import Role
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers import cleanup as headers
from tests.broker.peers import HandClock, Peer, request
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.running_store import running_store
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.store.message_store import MessageStore

BIG = bytes(3_000)
"""One message per segment."""


class OffsetFile:
    """What a kill leaves of the offsets."""

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self.offsets = offsets
        self.content: dict[str, dict[int, int]] = {}

    async def catch_up(self) -> None:
        self.content = deepcopy(self.offsets.entries)


class Desk:
    def __init__(self, store: MessageStore, role: Role) -> None:
        self.store = store
        self.topics = TopicTable(BrokerOptions())
        self.offsets = ConsumerOffsetTable()
        self.file = OffsetFile(self.offsets)
        self.processor = CleanupProcessor(
            store=store,
            topics=self.topics,
            offsets=self.offsets,
            changing=self.file,
            clock=HandClock(),
            role=role,
        )
        self.peer: Any = Peer()

    async def put(self, *topics: str) -> None:
        for topic in topics:
            assert self.store.put(draft(topic, body=BIG)).physical_offset >= 0
        self.store.dispatch()
        assert await self.store.flush_queues()

    async def lose(self, segments: int) -> None:
        for _ in range(segments):
            self.store.commit_log.queue.take_first().path.unlink()
        await self.store.space.queues.follow(self.store.commit_log.min_offset)

    async def clean_expired_queues(self) -> None:
        command = request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        header = headers.CleanExpiredConsumeQueue()
        answer = await self.processor.clean_expired_queues(header, command, self.peer)
        assert answer.code == 0

    async def clean_unused_topics(self) -> None:
        command = request(RequestCode.CLEAN_UNUSED_TOPIC)
        header = headers.CleanUnusedTopic()
        answer = await self.processor.clean_unused_topics(header, command, self.peer)
        assert answer.code == 0

    @property
    def queues(self) -> set[str]:
        return {topic for topic, _ in self.store.queues.table}


@asynccontextmanager
async def desk_at(root: Path, *, slave: bool = False) -> AsyncIterator[Desk]:
    async with running_store(root, FaultyDisk(root)) as store:
        yield Desk(store, Role(slave=slave))


@pytest.mark.trio
async def test_the_next_twenty_passes_do_not_look_at_the_hour(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        command = request(RequestCode.DELETE_EXPIRED_COMMITLOG)
        header = headers.DeleteExpiredCommitLog()
        assert desk.processor.delete_expired_log(header, command, desk.peer).code == 0
        assert desk.store.space.cleanup.manual_passes == 20


@pytest.mark.trio
async def test_queues_without_a_message_go_and_groups_begin_at_the_next_one(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path) as desk:
        await desk.put("OLD", "SCHEDULE_TOPIC_XXXX", "NEW", "NEW")
        desk.offsets.commit("ahead", "OLD", 0, 1, 0)
        desk.offsets.commit("ahead", "NEW", 0, 1, 0)
        desk.offsets.commit("none", "OLD", 0, -1, 0)
        await desk.lose(2)
        await desk.clean_expired_queues()
        assert desk.queues == {"SCHEDULE_TOPIC_XXXX", "NEW"}
        assert desk.offsets.query("ahead", "OLD", 0) == 0
        assert desk.file.content["OLD@ahead"] == {0: 0}, "a kill would have it skip messages"
        assert not desk.offsets.commit("ahead", "OLD", 0, 1, 0), "who runs hears of it first"
        assert desk.offsets.take_reset("ahead", "OLD", 0) == 0
        assert desk.offsets.query("ahead", "NEW", 0) == 1
        assert desk.offsets.query("none", "OLD", 0) == -1


@pytest.mark.trio
async def test_queues_of_unknown_topics_go_but_not_those_of_the_broker_itself(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path) as desk:
        kept = ["KNOWN", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%light"]
        await desk.put(*kept, "ORPHAN")
        desk.topics.update(TopicConfig(topic_name="KNOWN"), {}, 0)
        desk.offsets.commit("g", "ORPHAN", 0, 1, 0)
        await desk.clean_unused_topics()
        assert desk.queues == set(kept)
        assert not (tmp_path / "consumequeue" / "ORPHAN").exists()
        assert desk.offsets.query("g", "ORPHAN", 0) == 0
        await desk.put("ORPHAN")


@pytest.mark.trio
async def test_the_mark_of_a_spark_sink_is_no_offset(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        await desk.put("OLD", "NEW", "NEW")
        mark = 7 << 32
        desk.offsets.commit("SPARK_SINK_s", "OLD", 0, mark, 0)
        await desk.lose(1)
        await desk.clean_expired_queues()
        assert desk.queues == {"NEW"}
        assert desk.offsets.query("SPARK_SINK_s", "OLD", 0) == mark
        assert desk.offsets.commit("SPARK_SINK_s", "OLD", 0, 8 << 32, 0), "it never pulls"


@pytest.mark.trio
async def test_a_slave_leaves_offsets_to_its_master(tmp_path: Path) -> None:
    """A reset would stay open, and rewind the group once this one is the master."""
    async with desk_at(tmp_path, slave=True) as desk:
        await desk.put("OLD", "NEW", "NEW")
        desk.offsets.commit("ahead", "OLD", 0, 1, 0)
        await desk.lose(1)
        await desk.clean_expired_queues()
        assert desk.queues == {"NEW"}
        assert desk.offsets.query("ahead", "OLD", 0) == 1
        assert not desk.offsets.resets


@pytest.mark.trio
async def test_a_slave_keeps_a_queue_whose_topic_has_not_come_yet(tmp_path: Path) -> None:
    async with desk_at(tmp_path, slave=True) as desk:
        desk.topics.changed(TopicConfig(topic_name="GONE"), 0)
        await desk.put("GONE")
        desk.topics.copy({}, desk.store.commit_log.max_offset)
        await desk.put("AHEAD")
        await desk.clean_unused_topics()
        assert desk.queues == {"AHEAD"}
        await desk.put("GONE")
