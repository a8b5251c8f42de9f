"""Popping: what is handed out, what is written down for it, and what comes again."""

from __future__ import annotations

import errno
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.core.unreadable import tell_first_wanted
from aerobee.broker.errors import Refusal
from aerobee.broker.pop import pop_reader
from aerobee.broker.pop.pop_records import CheckPoint
from aerobee.remoting.errors import RequestPostponed
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import pop as headers
from aerobee.remoting.wire.headers.group import DeleteGroup
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.flags import Flag
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import read
from aerobee.store.results import PutResult, PutStatus
from tests.broker.desk import body_of, said
from tests.broker.pops import BROKER, open_pops, popped_of
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.quick_disk import WornDisk
from tests.kit.raw_client import batch_body

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.broker.pop.pop_reader import PopResult, PopScope
    from tests.broker.pops import Pops

REVIVE_LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


# ── The ladder ──


@pytest.mark.trio
async def test_what_is_not_acknowledged_comes_again_and_what_is_does_not(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        first = await pops.pop(invisible_time=10_000)
        assert [one.body for one in first] == [b"a", b"b", b"c"]
        assert await pops.bodies() == [], "what is out is out"
        assert (await pops.ack(first[1])).code == 0
        await pops.desk.pass_s(11)
        assert await pops.bodies() == [], "acknowledgements may be on their way until now"
        await pops.desk.pass_s(4)
        again = await pops.pop()
        assert [one.body for one in again] == [b"a", b"c"]
        assert [one.record.reconsume_times for one in again] == [1, 1]
        assert {one.receipt.retry for one in again} == {"1"}
        assert again[0].properties["1ST_POP_TIME"] == str(first[0].receipt.pop_time)
        assert again[0].properties["ORIGIN_GROUP"] == "g"
        for one in again:
            assert (await pops.ack(one)).code == 0
        await pops.desk.pass_s(70)
        assert await pops.bodies() == []
        assert pops.open_check_points() == 0


@pytest.mark.trio
async def test_a_message_that_nobody_ever_acknowledges_comes_again_and_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"poison")
        seen = []
        for _ in range(20):
            (one,) = await pops.pop(invisible_time=5_000)
            seen.append((one.record.reconsume_times, one.properties.get("1ST_POP_TIME")))
            await pops.desk.pass_s(10)
        first = str(int(seen[1][1] or 0))
        assert seen == [(0, None), *((times, first) for times in range(1, 20))]


@pytest.mark.trio
async def test_with_v2_names_it_comes_back_under_those_and_is_known_after_a_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, enable_retry_topic_v2=True) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        await pops.desk.pass_s(10)
        await pops.stop()
    async with open_pops(tmp_path) as pops:
        assert pops.desk.topics.get("%RETRY%g+t") is not None
        (one,) = await pops.pop()
        assert one.receipt.retry == "2"
        assert (await pops.ack(one)).code == 0
        await pops.desk.pass_s(70)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_with_accounts_no_pop_reads_what_the_name_of_its_retry_topic_may_mean_to_others(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """S4: `%RETRY%g_t` is the retry topic of the group `g_t` as well as that of `g` and `t`."""
    auth = AuthConfig(authentication_enabled=True)
    async with open_pops(tmp_path, auth=auth) as pops:
        await pops.send(b"mine")
        await pops.pop(invisible_time=5_000)
        pops.desk.topic("%RETRY%g_t", read_queue_nums=1, write_queue_nums=1)
        pops.desk.groups.find("g_t", pops.desk.clock.now_ms())
        await pops.desk.send("%RETRY%g_t", b"sent back by g_t")
        await pops.desk.pass_s(10)
        again = [one for _ in range(3) for one in await pops.pop()]
        assert [(one.body, one.receipt.retry) for one in again] == [(b"mine", "2")]


@pytest.mark.trio
async def test_with_accounts_what_no_pop_reads_is_not_acknowledged_or_hidden_either(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """S4: rights on `g` and `t` make no copies of what was sent back by the group `g_t`."""
    auth = AuthConfig(authentication_enabled=True)
    async with open_pops(tmp_path, auth=auth) as pops:
        desk, name = pops.desk, "%RETRY%g_t"
        for topic in (name, "%RETRY%g_u"):
            desk.topic(topic, read_queue_nums=1, write_queue_nums=1)
            await desk.send(topic, b"sent back")
        desk.groups.find("g_t", desk.clock.now_ms())
        desk.groups.delete("g_u", desk.clock.now_ms())
        receipt = f"0 {desk.clock.now_ms()} 60000 0 1 desk 0 0"
        for group, topic, served in (
            ("g", name, False),
            ("g_t", name, True),
            ("g", "%RETRY%g_u", True),
        ):
            fields: dict[str, Any] = {
                "consumer_group": group,
                "topic": topic,
                "queue_id": 0,
                "offset": 0,
            }
            fields["extra_info"] = receipt
            acks = {"c": group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "it": 60_000}
            acks |= {"pt": desk.clock.now_ms(), "b": "AQ=="}
            batch = json.dumps({"acks": [acks]}).encode()
            hidden = headers.ChangeInvisibleTime(**fields, invisible_time=10_000)
            answers = [
                await desk.ask(headers.AckMessage(**fields)),
                await desk.ask(hidden),
                await desk.ask(headers.BatchAckMessage(), batch),
            ]
            assert [one.code == 0 for one in answers] == [served] * 3, (group, topic)
        acks = {"c": "g", "t": "t", "r": "1", "so": 0, "q": 0, "rq": 0, "it": 60_000}
        acks |= {"pt": desk.clock.now_ms(), "b": "AQ=="}
        refused = await desk.ask(headers.BatchAckMessage(), json.dumps({"acks": [acks]}).encode())
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST, "whatever form names it"


# ── One pop ──


@pytest.mark.trio
async def test_groups_do_not_see_what_others_popped(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        assert await pops.bodies() == [b"a"]
        assert await pops.bodies(consumer_group="other") == [b"a"]


@pytest.mark.trio
async def test_a_pop_takes_from_every_queue_and_says_what_lies_where(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.topic("t", read_queue_nums=4, write_queue_nums=4)
        for queue_id in range(4):
            await pops.send(*(b"%d-%d" % (queue_id, n) for n in range(12)), queue_id=queue_id)
        answer = await pops.desk.ask(pops.header())
        assert len(popped_of(answer)) == 32
        assert said(answer)["restNum"] == "16"
        assert len(await pops.pop(queue_id=2)) + len(await pops.pop()) == 16


@pytest.mark.trio
async def test_its_check_point_is_that_of_the_java_broker(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", tag="X")
        await pops.send(b"c", tag="Y")
        await pops.send(b"d", tag="X")
        popped = await pops.pop(exp_type="TAG", exp="X", invisible_time=30_000)
        assert [one.body for one in popped] == [b"a", b"b", b"d"]
        (waiting,) = pops.desk.records("rmq_sys_wheel_timer")
        point = CheckPoint.from_bytes(waiting.body)
        popped_ms = popped[0].receipt.pop_time
        assert point == CheckPoint(
            start_offset=0,
            pop_time=popped_ms,
            invisible_time=30_000,
            count=3,
            queue_id=0,
            topic="t",
            group="g",
            diffs=[0, 1, 3],
            broker=BROKER,
            revive_time=popped_ms + 30_000,
            log_end=waiting.physical_offset,
        ), "but for the end of the log, which Java brokers pass over"
        said_by_it = decode(waiting.properties)
        assert said_by_it["TAGS"] == "ck"
        assert said_by_it["TIMER_DELIVER_MS"] == str(popped_ms + 29_000)
        assert said_by_it["UNIQ_KEY"] == f"t@0@0@g@{popped_ms}@{BROKER}@ck"
        assert said_by_it["REAL_TOPIC"] == REVIVE_LOG
        assert said_by_it["REAL_QID"] == str(popped[0].receipt.revive_qid)


@pytest.mark.trio
async def test_what_a_filter_does_not_want_is_passed_and_never_comes_back(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%d" % n for n in range(5)), tag="Y")
        assert await pops.bodies(exp_type="TAG", exp="X") == []
        assert pops.desk.offsets.query("g", "t", 0) == 5
        await pops.desk.pass_s(70)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_a_pop_with_an_sql_filter_gets_what_it_wants(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", tag="X")
        await pops.send(b"b", tag="Y")
        wanted = {"exp_type": "SQL92", "exp": "TAGS = 'Y'"}
        assert await pops.bodies(**wanted) == [b"b"]
        assert [*pops.desk.compensation.topics("g")] == ["t"]


@pytest.mark.parametrize(
    ("init_mode", "expected"), [(0, [b"old", b"older"]), (1, [b"old", b"older"])]
)
@pytest.mark.trio
async def test_a_new_group_begins_a_young_queue_at_its_start(
    tmp_path: Path, mock_clock: MockClock, init_mode: int, expected: list[bytes]
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"older", b"old")
        assert await pops.bodies(init_mode=init_mode) == expected


@pytest.mark.trio
async def test_a_group_that_begins_at_the_end_stays_where_it_first_looked(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        assert await pops.bodies(init_mode=1) == []
        assert pops.desk.offsets.query("g", "t", 0) == 0
        await pops.send(b"a", b"b")
        assert await pops.bodies(init_mode=1) == [b"a", b"b"]


@pytest.mark.trio
async def test_an_offset_of_another_life_of_the_queue_is_corrected(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        pops.desk.offsets.commit("g", "t", 0, 77, pops.desk.now_ms())
        assert await pops.bodies() == []
        await pops.send(b"b")
        assert await pops.bodies() == [b"b"]


@pytest.mark.trio
async def test_a_reset_is_heard_of_by_the_next_pop(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        assert await pops.bodies() == [b"a", b"b"]
        pops.desk.offsets.reset("g", "t", 0, 1, pops.desk.now_ms())
        assert await pops.bodies() == [b"b"]
        assert await pops.bodies() == []
        assert not pops.desk.offsets.resets


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.trio
async def test_who_is_held_gets_what_a_reset_brings_at_once(
    order: bool, tmp_path: Path, mock_clock: MockClock
) -> None:
    """#9369: a client of 5.x asks for 30 s, and was told of the reset by its next request."""
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        assert await pops.bodies() == [b"a"]
        pops.desk.begin(pops.header(order=order, poll_time=30_000))
        pops.desk.offsets.reset("g", "t", 0, 0, pops.desk.now_ms())
        await pops.desk.pass_s(1)
        popped = popped_of(await pops.desk.peer.next_answer())
        assert [one.record.body for one in popped] == [b"a"]


# ── Refusals ──


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -2}, ResponseCode.INVALID_PARAMETER),
        ({"exp_type": "TAG", "exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp_type": "SQL92", "exp": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"born_time": 1_600_000_000_000}, ResponseCode.POLLING_TIMEOUT),
        # Forty days are what a timer can do.
        ({"invisible_time": 41 * 86_400_000}, ResponseCode.MESSAGE_ILLEGAL),
        ({"invisible_time": 2**63 - 1, "order": True}, ResponseCode.MESSAGE_ILLEGAL),
        ({"invisible_time": -(2**63), "order": True}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
@pytest.mark.trio
async def test_a_bad_pop_is_refused_and_hands_out_nothing(
    tmp_path: Path, mock_clock: MockClock, fields: dict[str, object], code: int
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        assert (await pops.desk.ask(pops.header(**fields))).code == code
        assert await pops.bodies() == [b"a"]


@pytest.mark.trio
async def test_groups_that_may_not_are_refused(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path, auto_create_subscription_group=False) as pops:
        answer = await pops.desk.ask(pops.header(consumer_group="stranger"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.trio
async def test_a_pop_whose_check_point_finds_its_segment_late_is_postponed(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        late = PutResult(PutStatus.SEGMENT_LATE)
        with monkeypatch.context() as patch:
            patch.setattr(pops.desk.store, "put", lambda *_, **__: late)
            header = pops.header()
            command = Command(code=header.code)
            with pytest.raises(RequestPostponed):
                pops.desk.handlers[int(header.code)](header, command, pops.desk.peer)
        assert await pops.bodies() == [b"a", b"b"], "served again, and nothing was popped before"


@pytest.mark.trio
async def test_a_check_point_that_cannot_be_stored_hands_out_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        pops.desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
        answer = await pops.desk.ask(pops.header())
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        why = "no check point can be stored: service not available now: the disk is full"
        assert answer.remark == why
        assert pops.desk.offsets.query("g", "t", 0) == -1
        pops.desk.store.flags.clear(Flag.DISK_FULL)
        assert await pops.bodies() == [b"a"]


def fill_offsets(pops: Pops) -> None:
    """From now on no group gets an offset of a queue that it has not read yet."""
    offsets = pops.desk.offsets
    for number in range(offsets.max_entries - offsets.count):
        offsets.commit(f"other{number}", "t", 0, 0, pops.desk.now_ms())


@pytest.mark.trio
async def test_pops_whose_group_has_no_room_for_its_offset_multiply_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, max_consumer_offsets=1_000) as pops:
        await pops.send(b"a", b"b")
        fill_offsets(pops)
        for _ in range(3):
            assert (await pops.desk.ask(pops.header())).code == ResponseCode.SYSTEM_ERROR
        await pops.desk.pass_s(70)
        for number in range(20):  # The broker's own groups have got some, too.
            pops.desk.offsets.delete_group(f"other{number}")
        assert await pops.bodies() == [b"a", b"b"]
        assert pops.desk.topics.get("%RETRY%g_t") is None


@pytest.mark.trio
async def test_a_queue_without_room_for_the_group_s_offset_keeps_no_other_from_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, max_consumer_offsets=1_000) as pops:
        await pops.send(b"a")
        assert await pops.bodies() == [b"a"]
        fill_offsets(pops)
        await pops.desk.pass_s(70)
        for number in range(20):
            await pops.send(b"%d" % number)
            assert await pops.bodies() == [b"%d" % number]
        assert pops.desk.store.max_offset("%RETRY%g_t", 0) == 1
        for number in range(20):  # The broker's own groups have got some, too.
            pops.desk.offsets.delete_group(f"other{number}")
        assert await pops.bodies() == [b"a"]


# ── Waiting ──


@pytest.mark.trio
async def test_a_pop_waits_for_the_first_message_and_another_for_the_next(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        for _ in range(2):
            assert pops.desk.begin(pops.header(poll_time=15_000)) is None
        await pops.send(b"a")
        first = await pops.desk.peer.next_answer()
        assert [one.body for one in popped_of(first)] == [b"a"]
        assert not pops.desk.peer.answers, "one message is for one of them"
        await pops.send(b"b")
        second = await pops.desk.peer.next_answer()
        assert [one.body for one in popped_of(second)] == [b"b"]
        assert pops.desk.pop_hold.parked == 0


@pytest.mark.trio
async def test_a_pop_that_waits_in_vain_is_told_so_at_its_end(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(pops.header(poll_time=15_000))
        await pops.desk.pass_s(14.9, 0.1)
        assert not pops.desk.peer.answers
        await pops.desk.pass_s(0.1, 0.02)
        assert (await pops.desk.peer.next_answer()).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.trio
async def test_a_held_pop_gets_what_comes_back(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(invisible_time=5_000)
        pops.desk.begin(pops.header(poll_time=15_000))
        await pops.desk.pass_s(10)
        answer = await pops.desk.peer.next_answer()
        assert [one.body for one in popped_of(answer)] == [b"a"]


@pytest.mark.trio
async def test_a_pop_too_many_is_refused(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path, pop_polling_size=2) as pops:
        for _ in range(2):
            assert pops.desk.begin(pops.header(poll_time=15_000)) is None
        answer = pops.desk.begin(pops.header(poll_time=15_000))
        assert answer.code == ResponseCode.POLLING_FULL
        assert "popPollingSize" in answer.remark
        other = pops.header(poll_time=15_000, consumer_group="other")
        assert pops.desk.begin(other) is None


@pytest.mark.trio
async def test_who_is_held_hears_of_a_topic_that_goes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(pops.header(poll_time=5_000))
        pops.desk.topics.delete("t", pops.desk.now_ms(), 0)
        await pops.desk.pass_s(0.1, 0.1)
        (answer,) = pops.desk.peer.answers
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.trio
async def test_who_is_held_hears_of_a_group_that_goes_and_does_not_bring_it_back(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(pops.header(poll_time=5_000))
        pops.desk.begin(pops.header(poll_time=5_000, consumer_group="other"))
        pops.desk.groups.delete("g", pops.desk.now_ms())
        await pops.desk.pass_s(0.1, 0.1)
        (answer,) = pops.desk.peer.answers
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "g" not in pops.desk.groups.configs


@pytest.mark.trio
async def test_sends_call_nothing_of_it_while_nobody_waits(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        arrivals = pops.desk.store.arrivals
        assert arrivals.tell is None
        pops.desk.begin(pops.header(poll_time=1_000))
        assert arrivals.tell is not None
        await pops.desk.pass_s(1.1, 0.1)
        assert arrivals.tell is None


# ── In order ──


@pytest.mark.trio
async def test_in_order_nothing_more_comes_until_all_of_it_is_done(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        first = await pops.pop(order=True, max_msg_nums=2)
        assert [one.body for one in first] == [b"a", b"b"]
        assert {one.receipt.revive_qid for one in first} == {999}
        assert await pops.bodies(order=True) == []
        assert (await pops.ack(first[1])).code == 0
        assert pops.desk.offsets.query("g", "t", 0) == 0, "the first one is still out"
        assert await pops.bodies(order=True) == []
        assert (await pops.ack(first[0])).code == 0
        assert pops.desk.offsets.query("g", "t", 0) == 2
        assert await pops.bodies(order=True) == [b"c"]


@pytest.mark.trio
async def test_in_order_a_topic_made_anew_is_not_blocked_by_pops_of_its_first_life(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        assert await pops.bodies(order=True) == [b"a", b"b"]
        assert (await pops.desk.ask(DeleteTopicInBroker(topic="t"))).code == 0
        pop = pops.desk.broker.pop
        assert pop is not None
        assert not pop.orders.batches
        pops.desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        await pops.send(b"new")
        assert await pops.bodies(order=True) == [b"new"]


@pytest.mark.trio
async def test_in_order_what_was_out_before_that_comes_again_and_blocks_its_queue(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """A group that was switched to order has these in its retry topic, which nobody else reads."""
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        out = await pops.pop(invisible_time=5_000)
        assert [one.body for one in out] == [b"a", b"b"]
        await pops.desk.pass_s(10)
        (first,) = await pops.pop(order=True, max_msg_nums=1, invisible_time=20_000)
        assert (first.receipt.retry, first.receipt.revive_qid) == ("1", 999)
        assert await pops.bodies(order=True) == []
        pops.desk.begin(pops.header(order=True, poll_time=30_000))
        assert (await pops.ack(first)).code == 0
        pops.desk.after_round()
        answer = await pops.desk.peer.next_answer()
        (second,) = popped_of(answer)
        assert {first.body, second.body} == {b"a", b"b"}
        assert said(answer)["orderCountInfo"] == "1 0 0"
        assert (await pops.ack(second)).code == 0
        await pops.desk.pass_s(70)
        assert await pops.bodies(order=True) == []
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_in_order_the_same_attempt_gets_the_same_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        assert await pops.bodies(order=True, attempt_id="one") == [b"a"]
        assert await pops.bodies(order=True, attempt_id="two") == []
        answer = await pops.desk.ask(pops.header(order=True, attempt_id="one"))
        assert [one.body for one in popped_of(answer)] == [b"a"]
        assert said(answer)["orderCountInfo"] == "0 0 0", "that was no new attempt"


@pytest.mark.trio
async def test_in_order_what_was_out_for_too_long_is_handed_out_again_and_counted(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        first = await pops.pop(order=True, invisible_time=5_000)
        await pops.desk.pass_s(6)
        answer = await pops.desk.ask(pops.header(order=True))
        assert [one.body for one in popped_of(answer)] == [b"a", b"b"]
        assert said(answer)["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 1"
        assert (await pops.ack(first[0])).code == 0, "a stale receipt is not an error"
        assert pops.desk.offsets.query("g", "t", 0) == 0, "and changes nothing"


@pytest.mark.trio
async def test_in_order_a_held_pop_goes_on_when_the_queue_is_free(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        (first,) = await pops.pop(order=True, max_msg_nums=1, invisible_time=20_000)
        for _ in range(2):
            pops.desk.begin(pops.header(order=True, poll_time=30_000, max_msg_nums=1))
        await pops.ack(first)
        pops.desk.after_round()
        answer = await pops.desk.peer.next_answer()
        assert [one.body for one in popped_of(answer)] == [b"b"]
        # The other one waits until that is visible again, for nobody acknowledges it.
        await pops.desk.pass_s(25)
        assert not pops.desk.peer.answers
        with trio.fail_after(40):
            await pops.desk.pass_s(5)
            assert (await pops.desk.peer.next_answer()).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.trio
async def test_who_is_held_when_the_master_becomes_a_slave_gets_nothing_there(
    order: bool, tmp_path: Path, mock_clock: MockClock
) -> None:
    """#8715: the next master hands the same messages out, and it alone takes acknowledgements."""
    async with open_pops(tmp_path) as pops:
        desk = pops.desk
        desk.begin(pops.header(order=order, poll_time=30_000))
        desk.broker.core.role.is_slave = True
        await pops.send(b"a")
        desk.after_round()
        answer = await desk.peer.next_answer()
        assert (answer.code, popped_of(answer)) == (ResponseCode.SERVICE_NOT_AVAILABLE, [])
        assert desk.offsets.query("g", "t", 0) == -1
        pop = desk.broker.pop
        assert pop is not None
        assert pop.orders.get("t", "g", 0) is None


@pytest.mark.trio
async def test_who_is_held_hears_at_once_that_another_broker_is_the_master(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        desk = pops.desk
        desk.begin(pops.header(poll_time=30_000))
        desk.broker.core.role.is_slave = True
        pop = desk.broker.pop
        assert pop is not None
        pop.copy_begins()
        await pops.desk.pass_s(1)
        assert (await desk.peer.next_answer()).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.trio
async def test_in_order_a_held_pop_gets_what_becomes_visible_while_it_waits(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        await pops.pop(order=True, invisible_time=5_000)
        pops.desk.begin(pops.header(order=True, poll_time=30_000))
        await pops.desk.pass_s(5.1, 0.1)
        answer = await pops.desk.peer.next_answer()
        assert [one.body for one in popped_of(answer)] == [b"a"]


@pytest.mark.trio
async def test_what_is_out_in_order_is_known_after_a_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        first = await pops.pop(order=True)
        await pops.ack(first[0])
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, wall=wall) as pops:
        assert await pops.bodies(order=True) == []
        assert (await pops.ack(first[1])).code == 0
        assert pops.desk.offsets.query("g", "t", 0) == 2


@pytest.mark.trio
async def test_what_was_acknowledged_in_order_blocks_no_queue_after_a_kill(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The file of what is out is written less often than that of the offsets."""
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        first, second = await pops.pop(order=True, max_msg_nums=2, invisible_time=3_600_000)
        await pops.desk.pass_s(11)
        await pops.ack(first)
        await pops.desk.pass_s(6)
        wall = pops.desk.clock
    async with open_pops(tmp_path, wall=wall) as pops:
        assert await pops.bodies(order=True) == [], "the second one is still out"
        await pops.ack(second)
        assert pops.desk.offsets.query("g", "t", 0) == 2, "and not back at the first"
        assert await pops.bodies(order=True) == [b"c"]


@pytest.mark.trio
async def test_what_a_group_has_passed_in_no_order_blocks_no_queue_in_order(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        assert await pops.bodies(order=True, max_msg_nums=1, invisible_time=3_600_000) == [b"a"]
        assert await pops.bodies(max_msg_nums=1) == [b"a"]
        assert await pops.bodies(order=True) == [b"b"]


# ── Looking ──


@pytest.mark.trio
async def test_a_peek_shows_messages_and_changes_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        peek = headers.PeekMessage("g", "t", 0, 1)
        assert (await pops.desk.ask(peek)).code == ResponseCode.PULL_NOT_FOUND
        await pops.send(b"a", b"b")
        for _ in range(2):
            answer = await pops.desk.ask(peek)
            assert bytes(read(body_of(answer)).body) == b"a"
            assert said(answer)["restNum"] == "1"
        assert await pops.bodies() == [b"a", b"b"]


# ── On disk ──


@pytest.mark.trio
async def test_messages_of_an_earlier_run_are_popped_from_the_disk(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        await pops.stop()
    async with open_pops(tmp_path) as pops:
        assert await pops.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("gone", ["group", "topic"])
@pytest.mark.trio
async def test_who_waits_for_the_disk_hears_of_what_goes_and_leaves_no_offset(
    tmp_path: Path, mock_clock: MockClock, gone: str
) -> None:
    disk = WornDisk()
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"a", b"on disk")
        assert await pops.bodies(max_msg_nums=1) == [b"a"]
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"on disk"
        reading = pops.desk.begin(pops.header(init_mode=1))
        disk.bad = b""
        if gone == "group":
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            deleted = await pops.desk.ask(DeleteGroup("g", clean_offset=True))
        else:
            code = ResponseCode.TOPIC_NOT_EXIST
            deleted = await pops.desk.ask(DeleteTopicInBroker(topic="t"))
        assert deleted.code == 0
        with pytest.raises(Refusal) as refused:
            await reading
        assert refused.value.code == code
        assert pops.desk.offsets.query("g", "t", 0) == -1


@pytest.mark.parametrize("meanwhile", ["a pop", "a reset"])
@pytest.mark.trio
async def test_a_message_that_the_disk_cannot_read_takes_the_group_back_to_no_place(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    disk = WornDisk()
    tagged = {"exp": "x", "exp_type": "TAG"}
    async with open_pops(tmp_path, disk=disk) as pops:
        await pops.send(b"a", b"worn", b"c", tag="x")
        await pops.stop()
        wall = pops.desk.clock
    async with open_pops(tmp_path, disk=disk, wall=wall) as pops:
        disk.bad = b"worn"
        assert await pops.bodies(**tagged) == [b"a"]
        waits = trio.Event()
        goes_on: list[trio.Event] = [trio.Event()]

        async def tell_later(*where: Any) -> Any:
            if goes_on:
                event = goes_on.pop()
                waits.set()
                await event.wait()
            return await tell_first_wanted(*where)

        monkeypatch.setattr(pop_reader, "tell_first_wanted", tell_later)
        event = goes_on[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(pops.pop, **tagged))
            await waits.wait()
            if meanwhile == "a pop":
                bodies = [await pops.bodies(**tagged), await pops.bodies(**tagged)]
                assert bodies == [[], [b"c"]]
            else:
                pops.desk.offsets.reset("g", "t", 0, 0, pops.desk.now_ms())
            event.set()
        disk.bad = b""
        left = [] if meanwhile == "a pop" else [b"a", b"c", b"worn"]
        assert await pops.bodies(**tagged) == left


@pytest.mark.trio
async def test_an_offset_never_reaches_the_disk_before_its_check_point(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    saved = tmp_path / "config" / "consumerOffset.json"
    async with open_pops(tmp_path, disk) as pops:
        await pops.send(b"a")
        await pops.desk.puts.durable()
        await pops.pop()
        disk.faults.append(Fault(name="fdatasync", path="commitlog", times=1_000))
        for _ in range(30):
            mock_clock.jump(0.5)
            await trio.testing.wait_all_tasks_blocked()
        assert pops.desk.offset_file.failing
        assert not saved.exists()


@pytest.mark.parametrize("room", [0, 30, 70])
@pytest.mark.trio
async def test_properties_that_leave_no_room_keep_nothing_from_coming_again(
    tmp_path: Path, mock_clock: MockClock, room: int
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"small")
        long = encode({"a": "x" * (32_767 - 3 - room)})
        assert (await pops.desk.send("t", batch_body({b"long": long}), batch=True)).code == 0
        assert len(await pops.pop(invisible_time=5_000)) == 2
        for _ in range(2):
            await pops.desk.pass_s(10)
            answer = await pops.desk.ask(pops.header(invisible_time=5_000))
            assert answer.code == 0
            body = memoryview(body_of(answer))
            first = read(body)
            assert sorted([bytes(first.body), bytes(read(body, first.size).body)]) == [
                b"long",
                b"small",
            ]


@pytest.mark.trio
async def test_a_held_pop_that_cannot_read_is_over_and_the_broker_goes_on(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(pops.header(poll_time=15_000))
        with monkeypatch.context() as fails:
            fails.setattr(pops.desk.pop_reader, "read", no_more_files)
            await pops.send(b"a")
        answer = await pops.desk.peer.next_answer()
        assert answer.code == ResponseCode.POLLING_TIMEOUT, "it comes back at once"
        assert await pops.bodies() == [b"a"]


def no_more_files(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.trio
async def test_a_held_pop_that_fails_hears_of_it_and_those_beside_it_are_served(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path) as pops:
        reader = pops.desk.pop_reader
        read_all = reader.read

        def read_unless_broken(wanted: PopScope) -> PopResult:
            if wanted.group == "broken":
                raise ValueError("a message that this pop cannot be given")
            return read_all(wanted)

        for group in ("broken", "g"):
            header = pops.header(poll_time=10_000, consumer_group=group)
            assert pops.desk.begin(header) is None
        monkeypatch.setattr(reader, "read", read_unless_broken)
        await pops.send(b"a")
        pops.desk.after_round()
        assert [answer.code for answer in pops.desk.peer.answers] == [1, 0]


@pytest.mark.trio
async def test_an_attempt_has_a_name_of_bounded_length(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        answer = await pops.desk.ask(pops.header(order=True, attempt_id="x" * 256))
        assert (answer.code, "attemptId" in (answer.remark or "")) == (29, True)
        assert await pops.pop(order=True, attempt_id="x" * 255) == []


@pytest.mark.trio
async def test_a_pop_of_very_many_queues_ends_in_time_and_begins_elsewhere_next_time(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.topic("wide", read_queue_nums=1_000, write_queue_nums=1_000)
        await pops.send(b"a", topic="wide", queue_id=700)
        monkeypatch.setattr(pop_reader, "PASS_S", -1.0)
        monkeypatch.setattr(pop_reader, "LOOKS", 100)
        found: list[bytes] = []
        tries = 0
        while not found:
            tries += 1
            header = pops.header(topic="wide", poll_time=10_000)
            answer = await pops.desk.ask(header)
            assert answer.code in (0, ResponseCode.POLLING_TIMEOUT), "it is not held meanwhile"
            found = [one.body for one in popped_of(answer, "wide")]
            assert tries < 500
        assert found == [b"a"]
        peer = pops.desk.peer
        notify = headers.Notification("g", "wide", -1, 10_000, pops.desk.now_ms())
        assert (await pops.desk.ask(notify)).code == 0
        assert peer.held == 0
