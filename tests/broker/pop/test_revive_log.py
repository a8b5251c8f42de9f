"""What becomes of the records of a pop: with timers, or without when it was over at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.pop.pop_records import PopKey
from aerobee.broker.pop.revive_log import FreshPops, PopIdentity
from aerobee.remoting.wire.bodies.pop import BatchAckRequest, bit_set
from aerobee.remoting.wire.headers import pop as headers
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.tags import tags_code
from tests.broker.pops import BROKER, batch_ack, open_pops

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.answer import Answer
    from tests.broker.pops import Popped, Pops


def revived(pops: Pops) -> int:
    """Records that have ever reached the revive log."""
    max_offset = pops.desk.store.max_offset
    return sum(max_offset(queue.topic, queue.queue_id) for queue in pops.desk.revive.queues)


def timers(pops: Pops) -> int:
    """Timers that wait in the wheel."""
    assert pops.desk.timers is not None
    return pops.desk.timers.timers.waiting


@pytest.mark.trio
async def test_what_is_acknowledged_at_once_needs_no_timer_and_never_comes_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%d" % number for number in range(40)))
        first, second = await pops.pop(), await pops.pop()
        await pops.ack_all(first[3:])
        await pops.ack_all(second)
        for one in first[:3]:
            await pops.ack(one)
        assert len(pops.desk.records(WHEEL_TOPIC)) == 7, "all of it is in the log"
        await pops.desk.pass_s(70)
        assert (timers(pops), revived(pops)) == (0, 0)
        assert pops.desk.timers is not None
        assert not pops.desk.timers.enqueue.needless
        assert pops.desk.timers.unread == 0
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_its_records_are_as_the_put_hooks_would_have_made_them(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b", b"c")
        popped = await pops.pop()
        await pops.ack(popped[0])
        await pops.ack_all(popped[1:])
        found = pops.desk.records(WHEEL_TOPIC)
        codes = pops.desk.store.reader.tags_codes(
            pops.desk.store.queues.table[WHEEL_TOPIC, 0], 0, 9
        )
        assert len(found) == len(codes) == 3
        for record, code in zip(found, codes, strict=True):
            said = decode(record.properties)
            asked = {name: said[name] for name in ("TAGS", "TIMER_DELIVER_MS", "UNIQ_KEY")}
            at = said["REAL_TOPIC"], int(said["REAL_QID"])
            draft = MessageDraft(*at, record.body, b"", record.born_host, record.store_host)
            assert tags_code(said["TAGS"]) == code
            for hook in pops.desk.puts.hooks:
                hook(draft, asked, record.store_timestamp, False)
            assert (draft.topic, draft.queue_id) == (record.topic, record.queue_id)
            assert encode(asked).encode() == record.properties


@pytest.mark.trio
async def test_what_the_timers_have_read_meets_in_the_revive_log(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        both = await pops.pop(invisible_time=10_000)
        await pops.ack(both[0])
        await pops.desk.pass_s(1)
        assert timers(pops) == 2, "it was not over when they were read"
        await pops.ack(both[1])
        await pops.desk.pass_s(15)
        assert (timers(pops), revived(pops)) == (0, 3)
        assert await pops.bodies() == []


@pytest.mark.trio
async def test_timers_among_what_needs_none_are_delivered(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%d" % number for number in range(9)))
        for round_ in range(3):
            popped = await pops.pop(max_msg_nums=3, invisible_time=20_000)
            due = f"TIMER_DELIVER_MS\x01{pops.desk.now_ms() + 5_000}\x02"
            await pops.desk.send("later", b"timer %d" % round_, properties=due)
            await pops.ack_all(popped[round_ == 1 :])
        await pops.desk.pass_s(8)
        assert pops.desk.bodies("later") == [
            b"timer 0",
            b"timer 1",
            b"timer 2",
        ]
        await pops.desk.pass_s(20)
        assert await pops.bodies() == [b"3"], "one message of the second pop was not acknowledged"


@pytest.mark.trio
async def test_after_a_kill_what_was_over_is_read_again_and_does_not_come_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        await pops.ack_all(await pops.pop(invisible_time=10_000))
        wall = pops.desk.clock
    # Neither the table of offsets nor the wheel was saved.
    async with open_pops(tmp_path, wall=wall) as pops:
        await pops.desk.pass_s(15)
        assert revived(pops) == 2
        assert pops.desk.records("%RETRY%g_t") == []


@pytest.mark.trio
@pytest.mark.parametrize("times", [2, 3, 4])
async def test_more_time_asked_for_several_times_in_a_millisecond_is_acknowledged_once(
    tmp_path: Path, mock_clock: MockClock, times: int
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a")
        (one,) = await pops.pop()
        hidden = [await pops.hidden(one, 10_000) for _ in range(times)]
        assert len({message.receipt for message in hidden}) == 1
        assert (await pops.ack(hidden[0])).code == 0
        await pops.desk.pass_s(70)
        assert pops.desk.records("%RETRY%g_t") == []


@pytest.mark.trio
async def test_what_timers_that_do_not_run_owe_nobody_is_bounded(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.pop.revive_log.NEEDLESS_MAX", 10)
    monkeypatch.setattr("aerobee.broker.timers.timer_enqueue.PASS_MAX", 3)
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%d" % number for number in range(20)))
        for _ in range(20):
            (one,) = await pops.pop(max_msg_nums=1, invisible_time=10_000)
            for _ in range(3):
                await pops.ack(one)
        assert pops.desk.timers is not None
        assert len(pops.desk.timers.enqueue.needless) == 10, "of an acknowledgement twice one"
        await pops.desk.pass_s(30)
        assert not pops.desk.timers.enqueue.needless
        assert (timers(pops), pops.open_check_points()) == (0, 0)
        assert pops.desk.records("%RETRY%g_t") == []


@pytest.mark.trio
async def test_passing_over_what_needs_no_timer_is_no_lag(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        await pops.desk.pass_s(3_600, 60)
        await pops.ack_all(await pops.pop(max_msg_nums=1))
        await pops.desk.pass_s(0.2)
        await pops.pop(max_msg_nums=1)
        assert pops.desk.timers is not None
        assert pops.desk.timers.unread == 1
        assert pops.desk.timers.unread_ms <= 1_000


# ── A batch is what its acknowledgements are one by one ──


async def in_batches(
    pops: Pops, group: str, popped: Sequence[Popped], done: Iterable[int], chance: random.Random
) -> None:
    """Acknowledge these in some requests: in any order, some twice, with what nobody popped."""
    left = [number for number in done for _ in range(chance.choice((1, 1, 2)))]
    chance.shuffle(left)
    while left:
        part, left = left[: (size := chance.randrange(1, 12))], left[size:]
        beyond = chance.choice(((), (32, 33), (60,), (32, 64, 1_000, 65_535)))
        offsets = [popped[number].receipt.offset for number in part]
        start = popped[0].receipt.start_offset
        # Bits of messages that this pop did not bring: of the queue, or of none.
        bits = bit_set({*offsets, *(start + far for far in beyond)}, start)
        strange = batch_ack(popped[0].receipt, group, bits)
        strange.pop_time -= 1
        acks = [batch_ack(popped[0].receipt, group, bits), strange][:: chance.choice((1, -1))]
        body = BatchAckRequest(acks=acks, broker_name=BROKER).to_bytes()
        answer: Answer = await pops.desk.ask(headers.BatchAckMessage(), body)
        assert answer.code == 0, answer


@pytest.mark.trio
async def test_a_batch_in_any_order_with_duplicates_and_strangers_is_its_parts_one_by_one(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    chance = random.Random(15)
    async with open_pops(tmp_path) as pops:
        await pops.send(*(b"%02d" % number for number in range(32)))
        kept: dict[str, list[bytes]] = {}
        for case in range(40):
            done = chance.sample(range(32), chance.choice((0, 1, 5, 31, 32)))
            groups = f"batch{case}", f"single{case}"
            popped = {group: await pops.pop(consumer_group=group) for group in groups}
            if case % 3 == 0:
                await pops.desk.pass_s(0.5)
            await in_batches(pops, groups[0], popped[groups[0]], done, chance)
            for number in done:
                await pops.ack(popped[groups[1]][number], group=groups[1])
            left = [b"%02d" % number for number in range(32) if number not in done]
            kept |= dict.fromkeys(groups, left)
        await pops.desk.pass_s(70, 1)
        for group, bodies in kept.items():
            assert sorted(pops.desk.bodies(f"%RETRY%{group}_t")) == bodies


# ── FreshPops ──

KEYS = [PopIdentity(PopKey("t", "g", 0, start, 1, "b"), 0, 9) for start in range(3)]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("pop"), st.sampled_from(KEYS), st.sets(st.integers(0, 3), min_size=1)
            ),
            st.tuples(st.just("ack"), st.sampled_from(KEYS), st.sets(st.integers(0, 3))),
            st.tuples(st.just("read"), st.integers(0, 3), st.just(set[int]())),
        ),
        max_size=30,
    )
)
def test_records_become_needless_together_and_only_unread_ones_of_pops_that_are_over(
    steps: list[tuple[str, PopIdentity | int, set[int]]],
) -> None:
    end = read_to = 0
    needless: set[int] = set()
    fresh = FreshPops(lambda: read_to, needless)
    written: list[tuple[str, PopIdentity, set[int]]] = []
    for kind, what, offsets in steps:
        if isinstance(what, int):
            read_to = min(end, read_to + what)
            continue
        before = set(needless)
        written.append((kind, what, offsets))
        (fresh.begin if kind == "pop" else fresh.acknowledge)(what, sorted(offsets), end)
        end += 1
        new = needless - before
        if new:
            assert min(new) >= read_to, "the timers have read one of them"
            first, *others = sorted(new)
            begun, name, out = written[first]
            assert begun == "pop"
            assert {written[at][:2] for at in others} == {("ack", name)}
            assert out <= set().union(*(written[at][2] for at in others))
