"""A master knows by its own clock until when it may acknowledge."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.failover.lease import MARGIN, Lease

TIMES = st.floats(0, 1e6, allow_nan=False)


def test_a_lease_that_was_never_granted_allows_nothing() -> None:
    assert not Lease(10).may_answer(float("-inf"))
    assert not Lease(10).may_answer(0)


@given(TIMES, TIMES)
def test_it_ends_a_margin_before_the_decider_can_give_it_to_another(
    began: float, wait: float
) -> None:
    lease = Lease(10)
    lease.renewed(began)
    # The decider has heard of the renewal when it had begun, at the earliest.
    assert lease.ends <= began + 10 * (1 - MARGIN)
    assert lease.may_answer(began + wait) == (began + wait < began + 10 * (1 - MARGIN))


def test_a_renewal_that_began_earlier_takes_nothing_away() -> None:
    lease = Lease(10)
    lease.renewed(5)
    lease.renewed(3)
    assert lease.ends == 13


def test_a_pause_of_the_process_ends_it() -> None:
    lease = Lease(10)
    lease.renewed(100)
    assert lease.may_answer(107.9)
    assert not lease.may_answer(108)


def test_a_late_answer_does_not_bring_a_lease_back_that_was_given_up() -> None:
    lease = Lease(10)
    lease.renewed(0)
    lease.end()
    lease.renewed(1)
    assert not lease.may_answer(1)
