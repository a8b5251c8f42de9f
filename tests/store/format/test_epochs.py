"""Where two logs stop being equal, by the masters that wrote them."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.epochs import Epoch, common_end, cut_at, in_order, shortened


def test_a_slave_with_less_keeps_all_it_has() -> None:
    assert common_end([Epoch(1, 0)], 100, [Epoch(1, 0), Epoch(2, 300)], 400) == 100


def test_a_former_master_is_cut_where_the_next_one_began() -> None:
    assert common_end([Epoch(1, 0)], 350, [Epoch(1, 0), Epoch(2, 300)], 400) == 300


def test_an_epoch_that_the_master_never_heard_of_is_cut_whole() -> None:
    own = [Epoch(1, 0), Epoch(2, 300)]
    assert common_end(own, 500, [Epoch(1, 0), Epoch(3, 320)], 400) == 300


def test_an_epoch_of_one_number_with_another_begin_is_another_one() -> None:
    assert common_end([Epoch(1, 0), Epoch(2, 10)], 20, [Epoch(1, 0), Epoch(2, 12)], 30) == 10


def test_logs_without_a_common_epoch_have_nothing_in_common() -> None:
    assert common_end([Epoch(1, 0)], 350, [Epoch(2, 0)], 400) is None
    assert common_end([], 0, [Epoch(2, 0)], 400) is None


def test_epochs_behind_a_cut_are_gone() -> None:
    epochs = (Epoch(1, 0), Epoch(2, 300), Epoch(3, 300), Epoch(4, 301))
    assert cut_at(epochs, 301) == epochs[:3]
    assert cut_at(epochs, 300) == epochs[:1]
    assert cut_at(epochs, 0) == ()


def test_of_too_many_epochs_the_older_ones_count_as_one() -> None:
    epochs = (Epoch(2, 50), Epoch(3, 60), Epoch(5, 60), Epoch(7, 90), Epoch(8, 95))
    assert shortened(epochs, 5) == epochs
    assert shortened(epochs, 4) == (Epoch(5, 50), Epoch(7, 90), Epoch(8, 95))
    assert in_order(shortened(epochs, 4))


def test_epochs_ascend_and_may_be_empty() -> None:
    assert in_order([Epoch(1, 0), Epoch(2, 0), Epoch(5, 7)])
    assert not in_order([Epoch(1, 0), Epoch(1, 7)])
    assert not in_order([Epoch(1, 7), Epoch(2, 0)])


@given(st.data())
def test_what_is_common_was_written_by_the_same_masters(data: st.DataObject) -> None:
    """Two logs that grow from one: each offset in front of the common end has one writer."""
    shared = data.draw(st.integers(0, 3))
    starts = sorted(data.draw(st.lists(st.integers(0, 50), min_size=shared + 1, max_size=6)))
    starts[0] = 0
    own = [Epoch(number + 1, start) for number, start in enumerate(starts)]
    theirs = own[: shared + 1]
    own_max = starts[-1] + data.draw(st.integers(0, 10))
    their_max = theirs[-1].start + data.draw(st.integers(0, 60))
    theirs.append(Epoch(100, their_max))
    end = common_end(own, own_max, theirs, their_max)
    assert end is not None

    def writer(epochs: list[Epoch], offset: int) -> int:
        return max(epoch.epoch for epoch in epochs if epoch.start <= offset)

    assert end <= min(own_max, their_max)
    assert all(writer(own, offset) == writer(theirs, offset) for offset in range(end))
    if end < min(own_max, their_max):
        assert writer(own, end) != writer(theirs, end)
