from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.files.open_files import OpenFiles
from aerobee.store.format.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from aerobee.store.queues.consume_queue import ConsumeQueue
from aerobee.store.queues.dispatch_request import RUN_LEAST, DispatchRequest, in_runs
from aerobee.store.queues.unit_cache import UnitCache

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 100
DISK = Disk()
QUEUES = {
    name: ConsumeQueue(name, 0, Path(name), SIZE, DISK, OpenFiles(DISK), UnitCache())
    for name in "ab"
}
"""No message is added to them, so that they have no files."""


def request(
    number: int, queue: str = "a", offset: int = 0, *, stored: int = 1, sys_flag: int = 0
) -> DispatchRequest:
    """The message that is the number-th of the log."""
    of = QUEUES[queue]
    properties = b"KEYS\x01%d\x02" % number
    return DispatchRequest(of, SIZE * number, SIZE, number, offset, stored, sys_flag, properties)


def batch(count: int, sys_flag: int = 0) -> list[DispatchRequest]:
    return [request(number, offset=7 + number, sys_flag=sys_flag) for number in range(count)]


def each_of(requests: list[DispatchRequest]) -> Iterator[DispatchRequest]:
    for one in requests:
        yield from one.each() if one.run else [one]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from([1, 1, 1, 1, 2]),
            st.sampled_from([1, 1, 1, 2]),
            st.sampled_from([0, 0, 0, 1, TRANSACTION_PREPARED]),
        )
    )
)
def test_runs_are_the_messages_in_their_order(rows: list[tuple[str, int, int, int]]) -> None:
    ends = {"a": 0, "b": 0}
    requests = []
    for number, (queue, step, stored, sys_flag) in enumerate(rows):
        ends[queue] += step
        requests.append(request(number, queue, ends[queue], stored=stored, sys_flag=sys_flag))
    runs = in_runs(requests)
    assert list(each_of(runs)) == requests
    assert all(one.size == SIZE * len(list(each_of([one]))) for one in runs)


def test_a_batch_is_one_run_between_its_neighbours() -> None:
    messages = batch(RUN_LEAST)
    before, behind = request(9, "b", 0), request(9, "b", 1)
    [first, run, last] = in_runs([before, *messages, behind])
    assert (first, last) == (before, behind)
    assert (run.queue_offset, run.size, list(run.each())) == (7, SIZE * RUN_LEAST, messages)


@pytest.mark.parametrize(
    "messages",
    [[], batch(RUN_LEAST - 1), batch(RUN_LEAST, sys_flag=TRANSACTION_COMMIT)],
    ids=["none", "few", "of transactions"],
)
def test_others_stay_by_themselves(messages: list[DispatchRequest]) -> None:
    assert in_runs(messages) == messages
