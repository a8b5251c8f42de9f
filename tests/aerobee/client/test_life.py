"""The life of a client, producer or consumer: the whole table, state by event."""

import itertools

import pytest

from aerobee.client.life import TABLE, Event, Life, State
from aerobee.errors import ClientClosedError, ClientStateError

N, S, R, C, E, L = (
    State.NEW,
    State.STARTING,
    State.RUNNING,
    State.CLOSING,
    State.CLOSED,
    State.LOST,
)

EXPECTED = {
    #            START             STARTED CLOSE ENDED RESET
    State.NEW: (S, None, E, None, N),
    State.STARTING: (ClientStateError, R, C, N, None),
    State.RUNNING: (ClientStateError, None, C, L, None),
    State.CLOSING: (ClientClosedError, C, C, E, None),
    State.CLOSED: (ClientClosedError, E, E, E, N),
    State.LOST: (ClientClosedError, None, E, L, None),
}
"""None: a bug of ours, which fails loudly."""


def in_state(state: State) -> Life:
    life = Life("Producer")
    life.state = state
    return life


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_event_in_every_state_has_its_meaning(state: State, event: Event) -> None:
    life = in_state(state)
    expected = EXPECTED[state][list(Event).index(event)]
    if expected is None:
        assert (state, event) not in TABLE
        with pytest.raises(KeyError):
            life.on(event)
    elif isinstance(expected, State):
        assert life.on(event) is state
        assert life.state is expected
    else:
        with pytest.raises(ClientStateError, match="this Producer") as refused:
            life.on(event)
        assert type(refused.value) is expected
        assert life.state is state


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (N, "is not started"),
        (S, "is not started"),
        (R, None),
        (C, "is closed"),
        (E, "is closed"),
        (L, "nobody closed it"),
    ],
)
def test_only_what_runs_can_be_used(state: State, refusal: str | None) -> None:
    said = in_state(state).refusal()
    if refusal is None:
        assert said is None
    else:
        assert refusal in str(said)
        assert isinstance(said, ClientStateError)
        assert isinstance(said, ClientClosedError) == (state not in (N, S))


def test_from_every_state_a_close_leads_to_the_end() -> None:
    for state in State:
        life = in_state(state)
        life.on(Event.CLOSE)
        if life.state is not State.CLOSED:
            life.on(Event.ENDED)
        assert life.state is State.CLOSED
