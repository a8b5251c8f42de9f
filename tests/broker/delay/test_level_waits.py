"""What was seen in a level a full delay ago has waited, and nothing before that."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.delay.level_waits import REMEMBERED, STEP_MIN_S, STEPS, LevelWaits

DELAYS_S = st.sampled_from([0.5, 1.0, 60.0, 7_200.0])


@given(DELAYS_S, st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 3)), max_size=300))
def test_no_message_has_waited_too_early_or_by_a_step_too_late(
    delay_s: float, looks: list[tuple[float, int]]
) -> None:
    waits = LevelWaits(delay_s)
    late_s = max(STEP_MIN_S, delay_s / STEPS)
    now_s, came = 0.0, list[float]()
    for share, messages in looks:
        now_s += share * delay_s
        came += [now_s] * messages
        waits.look(len(came), now_s)
        early = sum(1 for at in came if at + delay_s <= now_s + 1e-6)
        surely = sum(1 for at in came if at + delay_s + late_s < now_s)
        assert surely <= waits.waited_to <= early


def test_what_is_remembered_is_bounded_and_no_wait_is_cut_short_by_it() -> None:
    waits = LevelWaits(1_000.0)
    for number in range(5 * REMEMBERED):
        waits.look(number + 1, number * 0.25)
        assert waits.waited_to <= max(0, number - 4_000 + 5)
