"""Four times what it can take, by the clock: the broker does its work and says no to the rest.

A broker whose every append takes a while longer has a capacity that a few threads exceed. Figures
at its real capacity: `python -m bench.overload`.
"""

import re
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.health import rss_anon, waited_s
from tests.kit.odd_broker import slow_by
from tests.kit.open_loop import ask, closed_loop, open_loop
from tests.kit.raw_client import RawAnswer, RawConnection

pytestmark = [pytest.mark.faults, pytest.mark.alone]

MiB = 1_048_576
APPEND_US = 1_500
PEAK_SECONDS = 2.0
SECONDS = 6.0
ATTEMPTS = 3
"""Machines stand still by themselves; what we do wrong would be there each time."""
WAIT_MS = 200
TOLD_WITHIN_S = 1.5
"""A refusal waits for the round that refuses it, and for the threads of this test."""
WAITED = re.compile(r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, .*, period in queue: (\d+)ms, size of .*")


def test_at_four_times_its_capacity_a_broker_stores_as_much_as_ever_and_refuses_the_rest(
    tmp_path: Path,
) -> None:
    seen = []
    for number in range(ATTEMPTS):
        shortfall = overloaded(tmp_path / str(number))
        if not shortfall:
            return
        seen.append(shortfall)
    raise AssertionError(f"{ATTEMPTS} times: {seen}")


def overloaded(directory: Path) -> str:
    """One run; what was not as it should be."""
    directory.mkdir()
    settings = {"waitTimeMillsInSendQueue": WAIT_MS, "mappedFileSizeCommitLog": 64 * MiB}
    broker = BrokerProcess(data=directory / "data", settings=settings, module=slow_by(APPEND_US))
    with broker:
        pid = broker.child.pid
        waits = [waited_s(pid)]
        peak = closed_loop(broker.address, "BenchmarkTest", window=32, seconds=PEAK_SECONDS)
        waits.append(waited_s(pid))
        before = rss_anon(pid)
        outcome = open_loop(broker.address, "BenchmarkTest", per_s=4 * peak, seconds=SECONDS)
        grown = rss_anon(pid) - before
        waits.append(waited_s(pid))
    # What others took of the broker's core, in either of the two, is taken out.
    peak_waited_s, waited = waits[1] - waits[0], waits[2] - waits[1]
    had_core = (1 - waited / SECONDS) / (1 - peak_waited_s / PEAK_SECONDS)
    within_s = TOLD_WITHIN_S + waited
    print(
        f"peak {peak:.0f}/s, offered {outcome.offered / SECONDS:.0f}/s, "
        f"good {outcome.good_per_s:.0f}/s, busy {len(outcome.busy_s) / SECONDS:.0f}/s, "
        f"waited {peak_waited_s:.1f} and {waited:.1f} s for a core"
    )
    assert peak <= 1e6 / APPEND_US, "its appends are not slow"
    told = [WAITED.fullmatch(remark) for remark in outcome.busy_remarks]
    assert all(told), outcome.busy_remarks
    assert outcome.others == []
    assert grown < 16 * MiB, f"{grown / MiB:.0f} MiB more"
    periods = [int(wait[1]) for wait in told if wait]
    busy_s, good_s = sorted(outcome.busy_s), sorted(outcome.good_s)
    found = {
        "goodput": outcome.good_per_s >= 0.8 * peak * min(1.0, had_core),
        "refusals": len(busy_s) >= peak,
        "none refused early": min(periods, default=0) >= WAIT_MS,
        "told in time": bool(busy_s) and busy_s[int(0.9 * len(busy_s))] <= within_s,
        "stored in time": bool(good_s) and good_s[int(0.9 * len(good_s))] <= within_s,
    }
    return ", ".join(name for name, fine in found.items() if not fine)


STALL_S = 1.0
LIMIT_MS = 500
DURING_A_STALL = ("[PCBUSY_CLEAN_QUEUE]broker busy, ", "[REJECTREQUEST]system busy, ")
UNREGISTERED_CODE, NOT_SUPPORTED = 9_999, 3


def test_sends_during_an_append_that_lasts_too_long_are_told_so_and_later_ones_are_stored(
    tmp_path: Path,
) -> None:
    seen = []
    for number in range(ATTEMPTS):
        answers = behind_a_stall(tmp_path / str(number))
        # When a lone request came is known no better than: since the last look at its socket.
        if all((answer.remark or "").startswith(DURING_A_STALL) for answer in answers):
            return
        seen.append(answers)
    raise AssertionError(f"{ATTEMPTS} times: {seen}")


def behind_a_stall(directory: Path) -> list[RawAnswer]:
    """What two clients hear whose sends came while an append was under way."""
    settings = {"osPageCacheBusyTimeOutMills": LIMIT_MS, "mappedFileSizeCommitLog": 64 * MiB}
    module = slow_by(round(STALL_S * 1e6))
    with (
        BrokerProcess(data=directory, settings=settings, module=module) as broker,
        RawConnection(broker.address) as first,
        RawConnection(broker.address) as second,
        RawConnection(broker.address) as third,
    ):
        for connection in (second, third):
            assert connection.call(UNREGISTERED_CODE).code == NOT_SUPPORTED
        ask(first, "BenchmarkTest")
        broker.let_run(0.2)
        ask(second, "BenchmarkTest")
        broker.let_run(0.5)
        ask(third, "BenchmarkTest")
        assert first.hear().code == 0
        answers = [second.hear(), third.hear()]
        ask(third, "BenchmarkTest")
        assert third.hear().code == 0, "nothing is remembered"
    return answers
