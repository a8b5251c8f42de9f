"""Answers of RocketMQ's controller, as it gave them, and what no controller says."""

from __future__ import annotations

import pytest

from aerobee.broker.failover.deciders.controller_calls import (
    NO_GROUP,
    GroupState,
    elects_unclean,
    group_state,
    members_of,
    record_of,
)
from aerobee.broker.failover.record import RecordIllegal
from aerobee.remoting.wire.command import Command, decode
from aerobee.remoting.wire.frame import FrameDecoder
from tests.kit.raw_client import request_frame

MASTER = {"masterBrokerId": "1", "masterAddress": "127.0.0.1:1", "masterEpoch": "3"}
REPLICAS = (
    b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"alive":true,"brokerAddress":"127.0.0.1:1",'
    b'"brokerId":1,"brokerName":"b"}],"masterAddress":"127.0.0.1:1","masterBrokerId":1,'
    b'"masterEpoch":1,"notInSyncReplicas":[{"alive":false,"brokerAddress":"127.0.0.1:2",'
    b'"brokerId":3,"brokerName":"b"}],"syncStateSetEpoch":2}}}'
)


def answer(code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    [frame] = FrameDecoder().feed(request_frame(code, 1, fields, body, flag=1))
    return decode(*frame)


def test_a_group_with_a_master() -> None:
    body = b'{"syncStateSet":[2,1],"syncStateSetEpoch":5}'
    state = group_state(answer(0, MASTER, body))
    assert state == GroupState(3, 1, "127.0.0.1:1", (1, 2), 5)
    record = record_of(state, 0)
    assert record is not None
    assert (record.epoch, record.master, record.sync_set, record.lease) == (3, 1, (1, 2), "3")


def test_a_group_whose_master_is_dead_counts_epochs_beyond_those_of_its_set() -> None:
    body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":5}'
    state = group_state(answer(0, {"masterEpoch": "6"}, body))
    assert state.master is None
    for last, master in ((2, 2), (1, 1), (9, 1)):
        record = record_of(state, last)
        assert record is not None
        assert (record.epoch, record.set_epoch, record.master, record.lease) == (6, 6, master, "")


def test_a_group_that_never_had_a_master_has_no_record() -> None:
    assert group_state(answer(2008, {})) == NO_GROUP
    body = b'{"syncStateSet":[],"syncStateSetEpoch":0}'
    assert record_of(group_state(answer(0, {"masterEpoch": "0"}, body)), 0) is None


def test_a_controller_that_elects_outside_of_the_sync_set() -> None:
    for text, unclean in ((b"true", True), (b"false", False)):
        body = b"a=1\nenableElectUncleanMaster=" + text + b"\nzone=enableElectUncleanMaster\n"
        assert elects_unclean(answer(0, {}, body)) is unclean
    assert elects_unclean(answer(0, {}, b"a=1\n")) is None
    assert elects_unclean(answer(1, {}, b"enableElectUncleanMaster=true")) is None


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (1, {}, b""),
        (0, {"masterEpoch": "many"}, b"{}"),
        (0, MASTER, b"no JSON"),
        (0, MASTER, b'{"syncStateSet":"all"}'),
    ],
)
def test_what_no_controller_answers_is_refused(
    code: int, fields: dict[str, str], body: bytes
) -> None:
    with pytest.raises(RecordIllegal):
        group_state(answer(code, fields, body))


@pytest.mark.parametrize(
    "body", [b'{"syncStateSet":[2,3],"syncStateSetEpoch":5}', b'{"syncStateSet":[1,0]}']
)
def test_a_record_that_no_controller_can_have_is_refused(body: bytes) -> None:
    state = group_state(answer(0, MASTER, body))
    with pytest.raises(RecordIllegal):
        record_of(state, 0)


def test_the_members_of_a_group_with_their_addresses() -> None:
    assert members_of(answer(0, {}, REPLICAS), "b") == {1: "127.0.0.1:1", 3: "127.0.0.1:2"}
    assert members_of(answer(0, {}, REPLICAS), "another") == {}
    with pytest.raises(RecordIllegal):
        members_of(answer(2007, {}), "b")
    with pytest.raises(RecordIllegal):
        members_of(answer(0, {}, b"[]"), "b")
