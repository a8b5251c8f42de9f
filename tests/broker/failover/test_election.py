"""Who may take the lease, what is said to the others, and who makes way for want of room."""

from itertools import product

import pytest

from aerobee.broker.failover.election import (
    SELDOM,
    YIELDS,
    Candidate,
    Room,
    emptied,
    objection,
)
from aerobee.broker.failover.record import Record, elected, first_record, given_back

RECORD = Record(epoch=3, master=2, sync_set=(1, 2), set_epoch=9)


@pytest.mark.parametrize(
    ("candidate", "record", "held", "said"),
    [
        (Candidate(1, 3), RECORD, False, ""),
        (Candidate(2, 3), RECORD, False, ""),
        (Candidate(1, 0), RECORD, False, ""),
        (Candidate(1, 3), RECORD, True, "the lease is held"),
        (Candidate(1, 3, "a wrong CRC at 7"), RECORD, False, "damaged: a wrong CRC at 7"),
        (Candidate(3, 3), RECORD, False, "not in the sync set [1, 2]"),
        (Candidate(1, 4), RECORD, False, "the record has epoch 3, and this broker knows 4"),
        (Candidate(1, 0, founder=True), None, False, ""),
        (Candidate(1, 0), None, False, "another member is to be the first"),
        (Candidate(1, 5, founder=True), None, False, "this broker knows epoch 5"),
        (Candidate(1, 0, founder=True), None, True, "the lease is held"),
    ],
)
def test_an_objection_says_why(
    candidate: Candidate, record: Record | None, held: bool, said: str
) -> None:
    reason = objection(candidate, record, held=held)
    assert bool(reason) == bool(said)
    assert said in reason


def test_a_member_of_the_set_without_an_epoch_was_emptied() -> None:
    assert emptied(Candidate(1, 0), RECORD, 2)
    assert not emptied(Candidate(1, 2), RECORD, 2)
    assert not emptied(Candidate(3, 0), RECORD, 2)
    assert not emptied(Candidate(1, 0), None, 2)


def test_a_first_master_that_was_killed_at_once_has_lost_nothing() -> None:
    first = Record(epoch=1, master=1, sync_set=(1,), set_epoch=1, lease="a")
    assert not emptied(Candidate(1, 0), first, 2)
    assert emptied(Candidate(1, 0), first, 1)


L = 10.0
"""A lease."""


@pytest.mark.parametrize(
    ("full_for", "free_for", "gave_before", "yields", "makes_way"),
    [
        # Full for so many leases, nobody's for so many (None: held), gave its own back so many ago.
        (None, None, None, False, False),
        (None, 5, None, False, False),
        (0, None, None, True, False),
        (0.9, None, None, True, False),
        (1, None, None, True, True),
        (30, None, None, True, True),
        (30, None, 19.9, True, False),
        (30, None, 20, True, True),
        (1, 0, None, True, True),
        (1, 1.9, None, True, True),
        (1, 2, None, False, True),
        (0, 2, None, False, False),
        (30, 2, 1, False, False),
    ],
)
def test_a_member_without_room_yields_for_a_while_and_a_master_makes_way_seldom(
    full_for: float | None,
    free_for: float | None,
    gave_before: float | None,
    yields: bool,
    makes_way: bool,
) -> None:
    room, now = Room(L), 1_000.0
    moments = {now}
    if gave_before is not None:
        room.gave(now - gave_before * L)
    moments |= {now - age * L for age in (full_for, free_for) if age is not None}
    for moment in sorted(moments):
        room.look(
            moment,
            full=full_for is not None and moment >= now - full_for * L,
            held=free_for is None or moment < now - free_for * L,
        )
    assert (room.yields(now), room.makes_way(now)) == (yields, makes_way)


def test_room_in_between_and_a_lease_in_between_begin_it_anew() -> None:
    room = Room(L)
    for now, full, held in ((0, True, True), (9, False, True), (10, True, True)):
        room.look(now, full=full, held=held)
    assert not room.makes_way(19)
    assert room.makes_way(20)
    for now, held in ((30, False), (45, True), (46, False)):
        room.look(now, full=True, held=held)
    assert room.yields(65)
    assert not room.yields(66)


STEP = L / 4


class Group:
    """Three members, their disks, and a lease that always reaches whoever may take it."""

    def __init__(self, full: tuple[bool, ...]) -> None:
        self.full = dict(enumerate(full, 1))
        self.rooms = {number: Room(L) for number in self.full}
        whole = tuple(self.full)
        first = first_record(1, "a")
        self.record = Record(epoch=1, master=1, sync_set=whole, set_epoch=1, lease=first.lease)
        self.held = True
        self.heir_until = 0.0
        self.now = 0.0
        self.changes: list[float] = []

    def step(self, order: tuple[int, ...]) -> None:
        """All look, in this order, and do what follows."""
        self.now += STEP
        for number in order:
            room = self.rooms[number]
            room.look(self.now, full=self.full[number], held=self.held)
            if self.held:
                self.lead(number, room)
            elif not room.yields(self.now) and self.may_take(number):
                self.record = elected(self.record, number, "a", 3)
                self.held = True
                self.changes.append(self.now)

    def lead(self, number: int, room: Room) -> None:
        if number != self.record.master or not room.makes_way(self.now):
            return
        fit = [other for other, full in self.full.items() if not full]
        if fit:
            room.gave(self.now)
            self.record, self.held = given_back(self.record, fit[-1]), False
            self.heir_until = self.now + L

    def may_take(self, number: int) -> bool:
        if self.now < self.heir_until and self.record.heir not in (0, number):
            return False
        return not objection(Candidate(number, self.record.epoch), self.record, held=self.held)

    def run(self, leases: float, order: tuple[int, ...]) -> None:
        for _ in range(round(leases * L / STEP)):
            self.step(order)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_whatever_disks_fill_the_one_with_room_leads_and_nobody_plays_ping_pong(
    order: tuple[int, ...],
) -> None:
    """Every way in which three disks are full, and then others, and then the master dies."""
    disks = list(product((False, True), repeat=3))
    for before, after, dies in product(disks, disks, (False, True)):
        group = Group(before)
        group.run(4, order)
        group.full = dict(enumerate(after, 1))
        if dies:
            group.held = False
            group.record = Record(
                epoch=group.record.epoch,
                master=group.record.master,
                sync_set=(1, 2, 3),
                set_epoch=group.record.set_epoch + 1,
                lease="over",
            )
        # One that has just made way does so again after a while only.
        group.run(SELDOM + 2, order)
        there = before, after, dies
        assert group.held, there
        assert all(after) or not after[group.record.master - 1], there
        changes = len(group.changes)
        group.run(3 * SELDOM, order)
        assert len(group.changes) == changes, there


def test_a_group_without_any_room_has_a_master_after_two_leases() -> None:
    group = Group((True, True, True))
    group.held = False
    group.run(YIELDS, (1, 2, 3))
    assert not group.held
    group.run(1, (1, 2, 3))
    assert group.held


def test_room_that_comes_and_goes_moves_the_lease_seldom() -> None:
    group = Group((True, False, True))
    for _ in range(12):
        # Whoever leads is full soon, and whoever does not has room.
        group.run(2, (1, 2, 3))
        group.full = {number: number == group.record.master for number in group.full}
    gone = group.now / (SELDOM * L)
    assert 0 < len(group.changes) <= len(group.full) * (gone + 1)
