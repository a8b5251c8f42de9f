"""What happens while a request waits: in its pool, for the disk, or between two of its steps.

Each request is stopped at each of its points in turn, and there its topic or its group is deleted,
somebody edits them, or this broker is the master no more. Whatever the answer is, no table knows
afterwards what is not there, the edit is kept, and who is no master changes nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from msgspec.structs import replace

from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.consumers.consumer_offsets import OWN_GROUPS
from aerobee.broker.errors import Refusal
from aerobee.remoting.server.routes import PendingAnswer, is_steps
from aerobee.remoting.wire.headers import auth, group, offset, pop, send, topic
from tests.broker.desk import Desk, open_desk
from tests.kit.cold_disk import ColdDisk
from tests.kit.quick_disk import QuickDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

pytestmark = pytest.mark.trio

MASTER = ReplicationConfig(ha_peers="127.0.0.1")
TOPICS = {"topicConfigList": [{"topicName": name, "perm": 6} for name in ("a", "t", "z")]}
GROUPS = {"groupConfigList": [{"groupName": name} for name in ("a", "g", "z")]}
POP: dict[str, Any] = {"queue_id": -1, "max_msg_nums": 8, "invisible_time": 9_000, "poll_time": 0}
FINISHED = frozenset({"deletion", "send back"})
"""Requests that go on with what they have begun: the tables of the next master say what counts."""
WAITING: dict[str, tuple[Any, Any]] = {
    "topics": (topic.CreateTopics(), TOPICS),
    "deletion": (topic.DeleteTopicInBroker(topic="t"), None),
    "groups": (group.CreateGroups(), GROUPS),
    "reset": (offset.ResetOffset("t", "g", 0, is_force=True), None),
    "reset of one": (offset.ResetOffset("t", "g", 0, is_force=True, queue_id=0), None),
    "clone": (offset.CloneGroupOffset(src_group="g", dest_group="h"), None),
    "pop": (pop.PopMessage(consumer_group="g", topic="t", init_mode=0, **POP), None),
    "send back": (send.ConsumerSendMsgBack(0, "g", 3, origin_topic="t"), None),
}
"""Requests with their bodies that wait, or run in steps, before they change anything."""
SAVED: tuple[tuple[Any, Any], ...] = (
    (group.CreateGroup(), {"groupName": "g", "retryMaxTimes": 7}),
    (pop.SetMessageRequestMode(), {"topic": "t", "consumerGroup": "g", "mode": "POP"}),
    (group.DeleteGroup(group_name="g", clean_offset=True), None),
    (auth.CreateUser(username="u"), {"password": "secret"}),
)
"""Requests that change something, and then wait for the disk."""


def begin(desk: Desk, header: Any, fields: Any) -> Any:
    return desk.begin(copy(header), b"" if fields is None else json.dumps(fields).encode())


def delete_topic(desk: Desk) -> None:
    desk.topics.delete("t", 0, desk.store.commit_log.max_offset)
    if ("t", 0) in desk.store.queues.table:
        desk.store.queues.take_out("t", 0)
    desk.offsets.delete_topic("t")


def delete_group(desk: Desk) -> None:
    desk.groups.delete("g", 0)
    desk.offsets.delete_group("g")


def edit(desk: Desk) -> None:
    for table in (desk.topics, desk.groups):
        for name in {"t", "g"} & table.configs.keys():
            config: Any = table.configs[name]
            table.configs[name] = replace(config, attributes={"edited": "yes"})


def hand_over(desk: Desk) -> None:
    desk.broker.core.role.is_slave = True


def tables(desk: Desk) -> Any:
    offsets = {key: dict(queues) for key, queues in desk.offsets.entries.items()}
    users = desk.broker.users.directory.users.everyone()
    known = dict(desk.topics.configs), dict(desk.groups.configs), str(desk.request_modes.modes)
    return known, offsets, dict(desk.offsets.resets), users


def happen(desk: Desk, change: Callable[[Desk], None], then: list[Any]) -> None:
    change(desk)
    then.append(tables(desk))


class Points:
    """The points of a request: something happens at the n-th."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self.at, self.then, self.passed = at, then, 0

    def one(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.then()

    async def run(self, outcome: Any) -> None:
        while is_steps(outcome):
            try:
                next(outcome)
                self.one()
            except StopIteration as end:
                outcome = end.value
        if isinstance(outcome, Awaitable):
            self.one()
        work = outcome.work if isinstance(outcome, PendingAnswer) else outcome
        if isinstance(work, Awaitable):
            await Watched(work, self.one)


class Watched:
    """An awaitable that says when it goes on."""

    def __init__(self, work: Awaitable[Any], goes_on: Callable[[], None]) -> None:
        self.work, self.goes_on = work, goes_on

    def __await__(self) -> Generator[Any, Any, Any]:
        inner: Any = self.work.__await__()
        following: Callable[[], Any] = partial(next, inner)
        while True:
            try:
                waits = following()
            except StopIteration as end:
                return end.value
            try:
                following = partial(inner.send, (yield waits))
            except BaseException as error:
                following = partial(inner.throw, error)
            self.goes_on()


class Cold(ColdDisk, QuickDisk):
    """Each first read waits, and no sync does."""


async def fill(desk: Desk) -> None:
    for name in ("a", "t"):
        desk.topic(name, read_queue_nums=1, write_queue_nums=1)
        for _ in range(3):
            await desk.send(name)
        desk.offsets.commit("g", name, 0, 2, 0)
    for name in ("g", "h"):
        desk.groups.create(name, 0)
    assert await desk.saver.save_all()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker with some messages, which have to be read from the disk."""
    root = tmp_path_factory.mktemp("filled")

    async def run() -> None:
        async with open_desk(root) as desk:
            await fill(desk)

    trio.run(run)
    return root


@pytest.mark.parametrize("change", [delete_topic, delete_group, edit, hand_over])
@pytest.mark.parametrize("name", WAITING)
async def test_what_happens_while_a_request_waits_is_not_undone(
    tmp_path: Path, filled: Path, name: str, change: Callable[[Desk], None]
) -> None:
    at, passed = 1, 1
    while at <= passed:
        shutil.copytree(filled, root := tmp_path / str(at))
        async with open_desk(root, Cold(), replication=MASTER) as desk:
            then: list[Any] = []
            points = Points(at, partial(happen, desk, change, then))
            with suppress(Refusal):
                await points.run(begin(desk, *WAITING[name]))
            at, passed = at + 1, points.passed
            topics = {
                *desk.offsets.groups_by_topic,
                *(queue[0] for queue in desk.store.queues.table),
            }
            assert topics <= desk.topics.configs.keys()
            groups = {*desk.offsets.topics_by_group, *(key[0] for key in desk.offsets.resets)}
            assert groups - OWN_GROUPS <= desk.groups.configs.keys()
            if then and change is hand_over and name not in FINISHED:
                assert tables(desk) == then[0]
            if then and change is edit:
                configs: Any = [desk.topics.get("t"), desk.groups.get("g")]
                assert all(config.attributes for config in configs if config is not None)


async def test_the_age_of_a_request_refuses_none_that_has_changed_something(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await fill(desk)
        for request in SAVED:
            before = tables(desk)
            outcome = begin(desk, *request)
            assert not isinstance(outcome, Awaitable) or tables(desk) == before
            await Points(0, lambda: None).run(outcome)
            assert tables(desk) != before
