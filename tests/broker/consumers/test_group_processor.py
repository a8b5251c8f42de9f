"""Consumer groups, changed and read by administrators."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.errors import Refusal
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.group import (
    CreateGroup,
    CreateGroups,
    DeleteGroup,
    GetAllGroupConfig,
    GetGroupConfig,
)
from tests.broker.desk import Desk, body_of, open_desk, said
from tests.kit.faulty_disk import Fault, FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer

pytestmark = pytest.mark.trio


async def update(desk: Desk, **fields: Any) -> Answer:
    return await desk.ask(CreateGroup(), json.dumps({"groupName": "g", **fields}).encode())


async def read(desk: Desk, group: str = "g") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body_of(await desk.ask(GetGroupConfig(group=group))))
    return found


async def test_a_group_is_made_changed_read_and_on_disk_when_it_is_answered(
    tmp_path: Path,
) -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000}}
    async with open_desk(tmp_path) as desk:
        assert (await update(desk, retryMaxTimes=2)).code == Code.SUCCESS
        answer = await update(desk, retryMaxTimes=3, groupRetryPolicy=policy)
        assert answer.code == Code.SUCCESS
        found = await read(desk)
        assert (found["retryMaxTimes"], found["groupRetryPolicy"]) == (3, policy)
        stored = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
        assert stored["subscriptionGroupTable"]["g"] == found


async def test_the_same_settings_again_do_not_move_the_version(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await update(desk, retryMaxTimes=2)
        version = desk.groups.version
        assert (await update(desk, retryMaxTimes=2)).code == Code.SUCCESS
        assert desk.groups.version == version


@pytest.mark.parametrize("name", ["no/way", "x" * 121, " "])
async def test_a_name_that_breaks_the_rule_is_refused(tmp_path: Path, name: str) -> None:
    async with open_desk(tmp_path) as desk:
        assert (await update(desk, groupName=name)).code == Code.INVALID_PARAMETER


async def test_a_group_that_cannot_be_saved_is_said_to_be_served_only(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path / "d", disk) as desk:
        disk.faults.append(Fault(name="fsync", path="subscriptionGroup", times=9))
        for reason in ("Input/output error", "not tried again so soon after this: Input/output"):
            with pytest.raises(Refusal, match=f"group is served but could not be saved: {reason}"):
                await update(desk)
        disk.faults.clear()


@pytest.mark.parametrize("automatic", [True, False])
async def test_asking_for_a_group_makes_it_where_using_one_does(
    tmp_path: Path, automatic: bool
) -> None:
    async with open_desk(tmp_path, auto_create_subscription_group=automatic) as desk:
        for name in ("nobody", "no/way"):
            answer = await desk.ask(GetGroupConfig(group=name))
            made = automatic and name == "nobody"
            assert answer.code == (0 if made else Code.SUBSCRIPTION_GROUP_NOT_EXIST)
            assert (name in desk.groups.configs) is made


async def test_all_groups_come_at_once_or_page_by_page(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await update(desk)
        names = sorted(desk.groups.configs)
        answer = await desk.ask(GetAllGroupConfig())
        assert said(answer) == {"totalGroupNum": str(len(names))}
        assert sorted(json.loads(body_of(answer))["subscriptionGroupTable"]) == names
        page = await desk.ask(GetAllGroupConfig(group_seq=0, data_version="", max_group_num=3))
        assert sorted(json.loads(body_of(page))["subscriptionGroupTable"]) == names[:3]


@pytest.mark.parametrize(
    ("fields", "left"), [({}, 7), ({"clean_offset": True}, -1), ({"remove_offset": True}, -1)]
)
async def test_a_deleted_group_loses_its_offsets_when_that_is_asked(
    tmp_path: Path, fields: dict[str, bool], left: int
) -> None:
    async with open_desk(tmp_path) as desk:
        await update(desk)
        desk.offsets.commit("g", "t", 0, 7, 0)
        for _ in range(2):
            answer = await desk.ask(DeleteGroup(group_name="g", **fields))
            assert answer.code == Code.SUCCESS, "also when it is gone already"
        assert "g" not in desk.groups.configs
        assert desk.offsets.query("g", "t", 0) == left


async def test_a_kill_brings_no_offsets_of_a_deleted_group_back(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "data") as desk:
        desk.topic("t")
        await desk.send("t")
        await update(desk)
        desk.offsets.commit("g", "t", 0, 1, 0)
        desk.offsets.commit("other", "t", 0, 1, 0)
        assert await desk.saver.save_all()
        answer = await desk.ask(DeleteGroup(group_name="g", clean_offset=True))
        assert answer.code == Code.SUCCESS
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    async with open_desk(tmp_path / "killed") as desk:
        assert desk.offsets.groups_of("t") == ["other"]


def nested(depth: int) -> dict[str, Any]:
    """A policy whose config is that deep."""
    policy: dict[str, Any] = {}
    for _ in range(depth - 2):
        policy = {"deeper": policy}
    return policy


async def test_whatever_a_group_is_given_is_there_after_a_start(tmp_path: Path) -> None:
    fields = {"groupRetryPolicy": nested(32), "attributes": {"x": '"$ref":'}}
    async with open_desk(tmp_path) as desk:
        for retries in (2, 3):  # The backup has it as well.
            assert (await update(desk, retryMaxTimes=retries, **fields)).code == Code.SUCCESS
        before = await read(desk)
    async with open_desk(tmp_path) as desk:
        assert await read(desk) == before


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (nested(33), "nested deeper than 32"),
        ({"x": "y" * 20_000}, "at most 16384"),
        ({"customizedRetryPolicy": {"$ref": "$"}}, 'a key "$ref"'),
    ],
)
async def test_a_config_that_could_not_be_read_again_is_refused(
    tmp_path: Path, policy: dict[str, Any], why: str
) -> None:
    body = json.dumps({"groupConfigList": [{"groupName": "g", "groupRetryPolicy": policy}]})
    async with open_desk(tmp_path) as desk:
        for answer in (
            await update(desk, groupRetryPolicy=policy),
            await desk.ask(CreateGroups(), body.encode()),
        ):
            assert answer.code == Code.INVALID_PARAMETER
            assert "the config of group [g]" in str(answer.remark)
            assert why in str(answer.remark)
        assert "g" not in desk.groups.configs


BEYOND_64 = 1 << 64


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        *(({name: -2}, name) for name in ("retryQueueNums", "retryMaxTimes", "brokerId")),
        *(({name: BEYOND_64}, name) for name in ("retryMaxTimes", "whichBrokerWhenConsumeSlowly")),
        ({"retryQueueNums": 1_025}, "retryQueueNums"),
        ({"retryMaxTimes": 1 << 31}, "retryMaxTimes"),
        ({"consumeTimeoutMinute": -1}, "consumeTimeoutMinute"),
        ({"groupSysFlag": 1 << 31}, "groupSysFlag"),
        ({"groupRetryPolicy": {"type": "NEVER"}}, "groupRetryPolicy.type"),
        ({"groupRetryPolicy": {"customizedRetryPolicy": {"next": [-1]}}}, "next[0]"),
        ({"groupRetryPolicy": {"customizedRetryPolicy": {"next": "soon"}}}, "next"),
        ({"groupRetryPolicy": {"exponentialRetryPolicy": {"initial": BEYOND_64}}}, "initial"),
        ({"groupRetryPolicy": {"exponentialRetryPolicy": {"multiplier": -1}}}, "multiplier"),
    ],
)
async def test_a_number_out_of_its_range_is_refused_and_named(
    tmp_path: Path, fields: dict[str, Any], name: str
) -> None:
    body = json.dumps({"groupConfigList": [{"groupName": "g", **fields}]})
    async with open_desk(tmp_path) as desk:
        for answer in (await update(desk, **fields), await desk.ask(CreateGroups(), body.encode())):
            assert answer.code == Code.INVALID_PARAMETER
            assert "the config of group [g] is not valid" in str(answer.remark)
            assert name in str(answer.remark)
        assert desk.groups.get("g") is None


async def test_the_bounds_of_each_number_are_taken(tmp_path: Path) -> None:
    exponential = {"initial": 1, "max": (1 << 63) - 1, "multiplier": 2}
    async with open_desk(tmp_path) as desk:
        for fields in (
            {"retryQueueNums": 0, "retryMaxTimes": -1, "consumeTimeoutMinute": 0},
            {"retryQueueNums": 1_024, "retryMaxTimes": (1 << 31) - 1, "brokerId": (1 << 63) - 1},
            {"groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": exponential}},
            {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [0]}}},
            {"groupRetryPolicy": {"type": "CUSTOMIZED", "of a later release": 1}},
        ):
            assert (await update(desk, **fields)).code == Code.SUCCESS, fields


async def test_an_edit_between_the_steps_of_a_list_is_not_lost(tmp_path: Path) -> None:
    wanted = [{"groupName": name, "attributes": {"+aerobee.max.rate": "9"}} for name in ("g", "h")]
    async with open_desk(tmp_path) as desk:
        await update(desk)
        steps = desk.begin(CreateGroups(), json.dumps({"groupConfigList": wanted}).encode())
        next(steps)
        await update(desk, attributes={"+priority.factor": "5"})
        answer: Any = finished(steps)
        await answer.work
        found = await read(desk)
        assert found["attributes"] == {"priority.factor": "5", "aerobee.max.rate": "9"}
