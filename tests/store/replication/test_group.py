"""What a slave does about a master, by the epochs of both."""

import pytest

from aerobee.store.errors import LogsUnrelated
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha_epochs import Greeting
from aerobee.store.replication.group import Agreement, Group, Verdict

ONE, TWO, THREE = Epoch(1, 0), Epoch(2, 300), Epoch(3, 300)


def group(*epochs: Epoch) -> Group:
    return Group(2, (1, 2, 3), epochs)


@pytest.mark.parametrize(
    ("own", "end", "theirs", "their_end", "agreed"),
    [
        # Equal, and behind.
        ((ONE,), 300, (ONE,), 300, (Verdict.FOLLOW, 300, (ONE,))),
        ((ONE,), 200, (ONE, TWO), 500, (Verdict.FOLLOW, 200, (ONE,))),
        # Masters that have written nothing yet are known from here on.
        ((ONE,), 300, (ONE, TWO), 300, (Verdict.FOLLOW, 300, (ONE, TWO))),
        ((ONE,), 300, (ONE, TWO, THREE), 300, (Verdict.FOLLOW, 300, (ONE, TWO, THREE))),
        # After a cut, an epoch of which no byte is left makes room for the master's.
        ((ONE, TWO), 300, (ONE, THREE), 500, (Verdict.FOLLOW, 300, (ONE, THREE))),
        # A longer tail, of the same master and of another one.
        ((ONE,), 400, (ONE, TWO), 500, (Verdict.CUT, 300, (ONE,))),
        ((ONE, TWO), 400, (ONE, THREE), 500, (Verdict.CUT, 300, (ONE,))),
        ((ONE,), 400, (ONE,), 350, (Verdict.CUT, 350, (ONE,))),
        # A master of an earlier epoch.
        ((ONE, TWO), 400, (ONE,), 900, (Verdict.OUTDATED, 400, (ONE, TWO))),
        ((ONE,), 300, (), 300, (Verdict.OUTDATED, 300, (ONE,))),
        # An empty log begins anywhere, whatever it was.
        ((), 0, (ONE, TWO), 500, (Verdict.FOLLOW, 0, (ONE,))),
        ((ONE,), 0, (Epoch(7, 0),), 500, (Verdict.FOLLOW, 0, (Epoch(7, 0),))),
        ((), 0, (), 0, (Verdict.FOLLOW, 0, ())),
    ],
)
def test_what_a_slave_does_follows_from_both_rows_of_epochs(
    own: tuple[Epoch, ...],
    end: int,
    theirs: tuple[Epoch, ...],
    their_end: int,
    agreed: tuple[Verdict, int, tuple[Epoch, ...]],
) -> None:
    assert group(*own).agree(Greeting(their_end, theirs), end) == Agreement(*agreed)


@pytest.mark.parametrize("own", [(), (Epoch(1, 7),)])
def test_logs_with_nothing_in_common_are_left_alone(own: tuple[Epoch, ...]) -> None:
    with pytest.raises(LogsUnrelated, match="none in common"):
        group(*own).agree(Greeting(500, (ONE, TWO)), 100)


def test_a_master_below_the_latest_that_is_known_is_outdated() -> None:
    slave = group(ONE)
    slave.know(4)
    slave.know(3)
    assert slave.agree(Greeting(300, (ONE, THREE)), 300).verdict is Verdict.OUTDATED
    assert slave.agree(Greeting(300, (ONE, Epoch(4, 300))), 300).verdict is Verdict.FOLLOW


def test_only_other_members_are_served_and_only_by_the_master() -> None:
    master = group(ONE)
    assert "not the master" in master.objection(1)
    master.leads = True
    assert master.objection(1) == ""
    assert "itself" in master.objection(2)
    assert "[1, 2, 3]" in master.objection(4)


def test_what_is_confirmed_never_falls_and_ends_with_the_own_log() -> None:
    slave = group()
    for confirmed, end, known in ((500, 300, 300), (200, 300, 300), (500, 400, 400)):
        slave.confirm(confirmed, end)
        assert slave.confirmed == known
