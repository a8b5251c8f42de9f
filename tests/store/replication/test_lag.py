"""For how long a slave has not had everything."""

from __future__ import annotations

from aerobee.store.replication.lag import Lag


def test_a_slave_with_everything_is_not_late_however_long_nothing_happened() -> None:
    lag = Lag(10.0)
    lag.reported(500, 500, 11.0)
    assert lag.seconds(500, 500, 4_000.0) == 0
    # The idle hour in front of a message is no lag.
    lag.to_send(500, 500, 4_000.0)
    assert lag.seconds(500, 700, 4_000.25) == 0.25


def test_under_load_it_is_as_old_as_what_it_has() -> None:
    lag = Lag(0.0)
    lag.reported(100, 100, 1.0)
    lag.reported(150, 200, 2.0)
    # At 2.0 it lacked what came after 1.0.
    assert lag.seconds(150, 200, 2.0) == 1.0
    lag.reported(200, 300, 3.0)
    # Now it has what was there at 2.0.
    assert lag.seconds(200, 300, 3.5) == 1.5
    lag.reported(300, 300, 4.0)
    assert lag.seconds(300, 300, 4.0) == 0


def test_more_to_send_while_it_is_behind_makes_it_no_younger() -> None:
    lag = Lag(0.0)
    lag.reported(100, 100, 1.0)
    lag.to_send(100, 100, 2.0)
    lag.to_send(100, 150, 5.0)
    assert lag.seconds(100, 200, 9.0) == 7.0


def test_one_that_never_reports_again_grows_later_and_later() -> None:
    lag = Lag(3.0)
    assert lag.seconds(-1, 100, 3.0) == 0
    assert lag.seconds(-1, 100, 63.0) == 60.0


def test_a_clock_cannot_make_it_negative() -> None:
    assert Lag(5.0).seconds(0, 1, 4.0) == 0
