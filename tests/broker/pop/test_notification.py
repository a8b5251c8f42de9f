"""Is there anything to pop, and how many wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import pop as headers
from tests.broker.desk import said
from tests.broker.pop.test_pop import no_more_files
from tests.broker.pops import open_pops

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.pops import Pops

NONE = {"hasMsg": "false", "pollingFull": "false"}
SOME = {"hasMsg": "true", "pollingFull": "false"}


def notification(pops: Pops, poll_time: int = 0, **fields: object) -> headers.Notification:
    given = {
        "consumer_group": "g",
        "topic": "t",
        "queue_id": -1,
        "poll_time": poll_time,
        "born_time": pops.desk.now_ms(),
        **fields,
    }
    return headers.Notification(**given)  # type: ignore[arg-type]  # of their types


@pytest.mark.trio
async def test_it_says_whether_a_pop_would_get_something_and_takes_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        assert said(await pops.desk.ask(notification(pops))) == NONE
        await pops.send(b"a")
        for _ in range(2):
            assert said(await pops.desk.ask(notification(pops))) == SOME
        await pops.pop(invisible_time=5_000)
        assert said(await pops.desk.ask(notification(pops))) == NONE
        await pops.desk.pass_s(10)
        assert said(await pops.desk.ask(notification(pops))) == SOME, "it came back"


@pytest.mark.trio
async def test_a_held_one_and_a_held_pop_both_hear_of_a_message(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(notification(pops, 15_000))
        pops.desk.begin(pops.header(poll_time=15_000))
        await pops.send(b"a")
        answers = [await pops.desk.peer.next_answer() for _ in range(2)]
        assert [answer.code for answer in answers] == [0, 0]
        assert SOME in [said(answer) for answer in answers] or pops.desk.pop_hold.parked == 1


@pytest.mark.trio
async def test_a_held_one_ends_without_a_message(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path, pop_polling_size=1) as pops:
        pops.desk.begin(notification(pops, 5_000))
        full = pops.desk.begin(notification(pops, 5_000))
        assert said(full) == {"hasMsg": "false", "pollingFull": "true"}
        await pops.desk.pass_s(5, 0.1)
        assert said(await pops.desk.peer.next_answer()) == NONE


@pytest.mark.trio
async def test_in_order_a_queue_that_is_out_has_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        await pops.send(b"a", b"b")
        await pops.pop(order=True, max_msg_nums=1, invisible_time=5_000)
        assert said(await pops.desk.ask(notification(pops, order=True))) == NONE
        assert said(await pops.desk.ask(notification(pops))) == SOME
        pops.desk.begin(notification(pops, 15_000, order=True))
        await pops.desk.pass_s(5.1, 0.1)
        assert said(await pops.desk.peer.next_answer()) == SOME


@pytest.mark.trio
async def test_held_pops_are_counted_by_queue(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        asked = headers.PollingInfo("g", "t", -1)
        assert said(await pops.desk.ask(asked)) == {"pollingNum": "0"}
        for _ in range(3):
            pops.desk.begin(pops.header(poll_time=15_000))
        pops.desk.begin(notification(pops, 15_000))
        assert said(await pops.desk.ask(asked)) == {"pollingNum": "3"}
        other = headers.PollingInfo("g", "t", 0)
        assert said(await pops.desk.ask(other)) == {"pollingNum": "0"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 7}, ResponseCode.INVALID_PARAMETER),
    ],
)
@pytest.mark.trio
async def test_a_bad_one_is_refused(
    tmp_path: Path, mock_clock: MockClock, change: dict[str, object], code: int
) -> None:
    async with open_pops(tmp_path) as pops:
        header = notification(pops, **change)  # type: ignore[arg-type]  # wrong on purpose
        assert (await pops.desk.ask(header)).code == code


@pytest.mark.trio
async def test_a_held_one_that_cannot_read_is_over_and_the_broker_goes_on(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pops(tmp_path) as pops:
        pops.desk.begin(notification(pops, 15_000))
        with monkeypatch.context() as fails:
            reader = pops.desk.pop_reader
            fails.setattr(reader, "has_messages", no_more_files)
            await pops.send(b"a")
        assert said(await pops.desk.peer.next_answer()) == NONE
        assert said(await pops.desk.ask(notification(pops))) == SOME
