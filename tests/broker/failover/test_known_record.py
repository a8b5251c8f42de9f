"""What a member knows of the decider's record, and what becomes of a change of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.failover.decider import ChangeRefused, DeciderSilent, Sight
from aerobee.broker.failover.known_record import KnownRecord, LeadOver
from aerobee.broker.failover.record import elected, first_record, given_back, with_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from aerobee.broker.failover.record import Record

pytestmark = pytest.mark.trio

OWN = first_record(1, "lease 1")
WIDER = partial(with_set, members=frozenset({1, 2}))


class Script:
    """A decider that answers as it is told, call by call."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def next(self) -> Any:
        await trio.lowlevel.checkpoint()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        answer: Sight = await self.next()
        return answer

    async def take(self, sight: Sight, record_for: Callable[[str], Record]) -> Sight:
        raise AssertionError("nobody takes a lease here")

    async def renew(self, lease: str) -> bool:
        answer: bool = await self.next()
        return answer

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        assert lease == "lease 1"
        answer: Sight = await self.next()
        return answer


class Restored(Script):
    """A decider that compares and swaps, from an older record on."""

    def __init__(self, sight: Sight) -> None:
        super().__init__()
        self.sight = sight

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        await trio.lowlevel.checkpoint()
        return self.sight

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        await trio.lowlevel.checkpoint()
        if sight.version != self.sight.version:
            raise ChangeRefused("it is another one")
        self.sight = Sight(record, sight.version + 1, held=True)
        return self.sight


class Overtaken(Script):
    """A decider whose answer to a change comes when a later record is known."""

    def __init__(self, known: KnownRecord, later: Sight, answer: Any) -> None:
        super().__init__(answer)
        self.known, self.later = known, later

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        self.known.note(self.later)
        return await super().change(sight, record, lease)


def known_by(*answers: Any) -> tuple[KnownRecord, list[Sight]]:
    """What member 1 knows, which leads, and the sights that it was told of since."""
    noted: list[Sight] = []
    known = KnownRecord(Script(*answers), 1, 1.0, noted.append)
    known.note(Sight(OWN, 1, held=True))
    noted.clear()
    return known, noted


async def test_a_silent_decider_is_told_of_once_and_so_is_its_return() -> None:
    sight = Sight(OWN, 1, held=True)
    known, noted = known_by(DeciderSilent("away"), DeciderSilent("still"), sight, True)
    with capture_logs() as logs:
        assert await known.look(None) is None
        assert await known.renewed("lease 1") is None
        assert known.problem == "still"
        assert await known.look(None) == sight
        assert await known.renewed("lease 1")
    assert known.problem == ""
    assert [line["event"] for line in logs] == ["failover.decider_away", "failover.decider_back"]
    assert noted == [], "the owner decides what is noted"


LATER = Sight(elected(given_back(OWN, 2), 1, "lease 2", 1), 3, held=True)


async def test_an_answer_that_is_overtaken_is_not_taken_for_the_present_record() -> None:
    known, _ = known_by()
    done = Sight(given_back(OWN), 2, held=False)
    known.decider = Overtaken(known, LATER, done)
    assert await known.change("lease 1", given_back) == done.record
    assert known.sight == LATER


async def test_a_change_of_a_record_that_was_followed_by_another_is_asked_for_no_more(
    autojump_clock: MockClock,
) -> None:
    known, _ = known_by()
    known.decider = Overtaken(known, LATER, DeciderSilent("lost"))
    with pytest.raises(LeadOver, match="a later record"):
        await known.change("lease 1", given_back)
    assert known.sight == LATER


async def test_a_change_is_asked_for_until_the_decider_has_answered(
    autojump_clock: MockClock,
) -> None:
    done = Sight(WIDER(OWN), 2, held=True)
    known, noted = known_by(DeciderSilent("lost"), DeciderSilent("lost"), done)
    assert await known.change("lease 1", WIDER) == done.record
    assert (noted, known.record, known.epoch) == ([done], done.record, OWN.epoch)


async def test_a_change_that_is_there_already_was_made_by_a_lost_answer() -> None:
    done = Sight(WIDER(OWN), 2, held=True)
    known, noted = known_by(ChangeRefused("it is another one"), done)
    assert await known.change("lease 1", WIDER) == done.record
    assert noted == [done]


async def test_a_refused_change_leaves_the_record_that_is_there() -> None:
    there = Sight(OWN, 3, held=True)
    known, noted = known_by(ChangeRefused("it is another one"), there)
    assert await known.change("lease 1", WIDER) == OWN
    assert noted == [there]


@pytest.mark.parametrize("there", [Sight(None, 0, held=False), Sight(OWN, 3, held=False)])
async def test_without_a_lease_nothing_is_changed(there: Sight) -> None:
    known, noted = known_by(ChangeRefused("it is another one"), there)
    with pytest.raises(LeadOver, match="another record, or the lease is over"):
        await known.change("lease 1", WIDER)
    assert noted == []
    known.note(Sight(given_back(OWN), 4, held=False))
    with pytest.raises(LeadOver, match="given back"):
        await known.change("lease 1", WIDER)


async def test_an_older_record_is_not_the_one_that_is_known_and_has_lost_changes() -> None:
    wider = Sight(WIDER(OWN), 2, held=True)
    sights = [wider, Sight(OWN, 9, held=True), DeciderSilent("away"), Sight(None, 0, held=True)]
    known, _ = known_by(*sights)
    known.note(wider)
    assert [await known.is_as_known() for _ in sights] == [True, False, True, True]
    assert "epoch 1 and setEpoch 1, and this broker knows 1 and 2" in known.lost_changes(OWN)
    assert not known.lost_changes(wider.record)


async def test_a_record_that_has_lost_changes_is_replaced_and_never_believed(
    autojump_clock: MockClock,
) -> None:
    wider = Sight(WIDER(OWN), 2, held=True)
    older = Sight(OWN, 9, held=True)
    known, noted = known_by()
    known.note(wider)
    known.decider = script = Restored(older)
    assert await known.change("lease 1", WIDER) == script.sight.record
    assert noted == [wider, script.sight]
    assert script.sight.record is not None
    assert (script.sight.record.sync_set, script.sight.record.set_epoch) == ((1, 2), 3)


@pytest.mark.parametrize("there", [first_record(1, "lease 2"), first_record(2, "lease 2")])
async def test_a_change_of_an_earlier_master_is_never_asked_for(there: Record) -> None:
    known, _ = known_by()
    known.note(Sight(there, 4, held=True))
    with pytest.raises(LeadOver):
        await known.change("lease 1", given_back)
