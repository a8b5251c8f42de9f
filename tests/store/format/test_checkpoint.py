from aerobee.store.format.checkpoint import CHECKPOINT, Checkpoint


def test_recovery_looks_back_three_seconds_before_the_smaller_time() -> None:
    assert Checkpoint(10_000, 8_000).min_timestamp == 5_000
    assert Checkpoint(8_000, 10_000).min_timestamp == 5_000


def test_a_zero_in_either_time_means_nothing_is_known() -> None:
    assert Checkpoint(0, 10_000).min_timestamp == 0
    assert Checkpoint(10_000, 0).min_timestamp == 0


def test_values_come_back() -> None:
    value = Checkpoint(1, 2, 3, 4, 5)
    assert CHECKPOINT.read(CHECKPOINT.write(value)) == value


def test_no_time_of_the_checkpoint_is_later_than_the_log() -> None:
    assert Checkpoint(9, 8, 2, 7, 7).clamped(5) == Checkpoint(5, 5, 2, 7, 7)
