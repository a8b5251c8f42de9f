"""How far slaves are, by a clock that stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.replication.slaves_view import SlavesView
from aerobee.store.format.ha import NEVER_COUNTS
from aerobee.store.replication.log_out import Follower
from aerobee.store.replication.transfer import LogSpan, Standing
from aerobee.store.replication.wires import ClassicMasterEnd

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core

GAP = 4_096


def follower(peer: str, span: LogSpan, *reports: int) -> Follower:
    made = Follower(peer.partition(":")[0], peer, 0.0, ClassicMasterEnd())
    for report in reports:
        made.transfer.reported(report, span)
    return made


def view_of(span: LogSpan, *followers: Follower, now: float = 30.0) -> SlavesView:
    log_out = SimpleNamespace(followers=followers, span=lambda: span)
    config = SimpleNamespace(replication=ReplicationConfig(ha_max_gap_not_in_sync_bytes=GAP))
    core = SimpleNamespace(store=SimpleNamespace(log_out=log_out), config=config)
    return SlavesView(cast("Core", core), lambda: now)


def test_a_slave_is_in_sync_until_the_gap_is_too_wide() -> None:
    span = LogSpan(0, 10_000, 10_000, 20_000, 10_000)
    near = follower("10.0.0.2:1", span, 10_000 - GAP + 1)
    far = follower("10.0.0.3:1", span, 10_000 - GAP)
    shown = view_of(span, near, far).of_hosts()
    assert {host: slave.in_sync for host, slave in shown.items()} == {
        "10.0.0.2": True,
        "10.0.0.3": False,
    }
    assert (shown["10.0.0.3"].lag_bytes, shown["10.0.0.3"].lag_s) == (GAP, 30.0)


def test_of_two_connections_of_a_slave_the_further_one_counts() -> None:
    span = LogSpan(0, 10_000, 10_000, 20_000, 10_000)
    old, new = follower("10.0.0.2:1", span, 500), follower("10.0.0.2:2", span, 10_000)
    for connections in ((old, new), (new, old)):
        (shown,) = view_of(span, *connections).of_hosts().values()
        assert (shown.peer, shown.lag_bytes, shown.lag_s) == ("10.0.0.2:2", 0, 0.0)


def test_a_slave_that_cannot_follow_lacks_everything_and_is_not_in_sync() -> None:
    span = LogSpan(0, 1_000, 1_000, 20_000, 1_000)
    (shown,) = view_of(span, follower("10.0.0.2:1", span, 9_000)).figures()
    assert (shown.standing, shown.in_sync, shown.lag_bytes) == (Standing.AHEAD, False, 1_000)


def test_a_slave_whose_next_bytes_its_master_cannot_read_is_not_in_sync() -> None:
    span = LogSpan(0, 1_000, 1_000, 20_000, 1_000)
    slave = follower("10.0.0.2:1", span, 500)
    slave.unreadable = "Input/output error"
    (shown,) = view_of(span, slave).figures()
    assert (shown.standing, shown.in_sync, shown.acknowledged) == ("unreadable", False, 500)


def test_a_shadow_is_shown_and_is_no_slave() -> None:
    span = LogSpan(0, 1_000, 1_000, 20_000, 1_000)
    view = view_of(span, follower("10.0.0.2:1", span, 1_000, NEVER_COUNTS))
    (shown,) = view.figures()
    assert (shown.standing, shown.in_sync, shown.acknowledged) == ("shadow", False, 0)
    assert not view.of_hosts()
