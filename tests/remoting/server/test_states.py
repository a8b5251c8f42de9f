"""The table of a connection's states, whole: each state × each event, against a model of flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from aerobee.remoting.server.states import (
    CLOSED,
    INPUT,
    OPENED,
    OUTPUT,
    ROOM,
    STATES,
    Event,
    Input,
    Output,
    Room,
    State,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Flags:
    """What a connection is like, one fact at a time."""

    frames: bool = False
    pieces: bool = False
    staged: bool = False
    request: bool = False
    """A request is in progress."""
    put_off: bool = False
    """That request waits to be resumed."""
    unsent: bool = False
    much: bool = False
    """So much is unsent that it is not read."""
    starved: bool = False
    closed: bool = False

    @property
    def left(self) -> bool:
        """Whether anything of its input is."""
        return self.frames or self.pieces or self.staged or self.request


NOTHING_LEFT: Final = {"frames": False, "pieces": False, "staged": False}
CHANGES: Final[Mapping[Event, tuple[Callable[[Flags], bool], dict[str, bool]]]] = {
    Event.TURN: (lambda flags: not flags.put_off, NOTHING_LEFT),
    Event.BEGUN: (lambda flags: not flags.left, {"request": True}),
    Event.ENDED: (
        lambda flags: not (flags.frames or flags.pieces or flags.staged or flags.put_off),
        {"request": False},
    ),
    Event.POSTPONED: (
        lambda flags: not (flags.frames or flags.pieces or flags.staged or flags.put_off),
        {"request": True, "put_off": True},
    ),
    Event.RESUMED: (lambda flags: flags.put_off, {"put_off": False}),
    Event.FRAMES_LEFT: (lambda flags: not flags.left, {"frames": True}),
    Event.BYTES_LEFT: (lambda flags: not flags.left, {"pieces": True}),
    Event.STAGE_LEFT: (lambda flags: not flags.left or flags.staged, {"staged": True}),
    Event.SENT: (lambda _: True, {"unsent": False, "much": False}),
    Event.UNSENT: (lambda _: True, {"unsent": True}),
    Event.UNSENT_MUCH: (lambda flags: flags.unsent, {"much": True}),
    Event.UNSENT_LITTLE: (lambda flags: flags.unsent, {"much": False}),
    Event.STARVED: (lambda flags: not flags.starved, {"starved": True}),
    Event.FED: (lambda flags: flags.starved, {"starved": False}),
    Event.CLOSED: (lambda _: True, {"closed": True}),
}
"""Each event: when it can happen, and what it changes."""


def flags_of(state: State) -> Flags:
    return Flags(
        frames=state.input is Input.TURN_OVER,
        pieces=state.input is Input.BYTES,
        staged=state.input is Input.STAGE,
        request=state.input in (Input.STEPS, Input.POSTPONED),
        put_off=state.input is Input.POSTPONED,
        unsent=state.output is not Output.FLOWING,
        much=state.output is Output.PAUSED,
        starved=state.room is Room.STARVED,
        closed=state.input is Input.CLOSED,
    )


@pytest.mark.parametrize("state", STATES.values(), ids=repr)
def test_an_event_changes_one_fact_of_a_state_or_cannot_happen_in_it(state: State) -> None:
    flags = flags_of(state)
    for event, (can_happen, changes) in CHANGES.items():
        after = state.after[event]
        if flags.closed or event is Event.CLOSED:
            assert after is CLOSED, event
        elif can_happen(flags):
            assert after is not None, event
            assert flags_of(after) == replace(flags, **changes), event
        else:
            assert after is None, event
    assert len(state.after) == len(CHANGES) == len(Event)


@pytest.mark.parametrize("state", STATES.values(), ids=repr)
def test_a_state_says_what_the_loop_may_do(state: State) -> None:
    flags = flags_of(state)
    # What the stage below has decrypted does not wait for us while there is no room for it.
    waits = flags.left and not (flags.staged and flags.starved)
    stopped = flags.closed or flags.much or flags.put_off
    assert state.waits == waits
    assert state.turns == (waits and not stopped)
    assert state.free == (not flags.left and not stopped)
    assert state.reads == (not flags.left and not stopped and not flags.starved)
    assert state.writes == ((waits and not flags.put_off) or flags.unsent)
    assert (state.closed, state.paused, state.postponed, state.stalled, state.starved) == (
        flags.closed,
        flags.much,
        flags.put_off,
        flags.unsent,
        flags.starved,
    )


def test_every_state_can_be_reached_from_the_first_and_closed_from_each() -> None:
    seen, to_see = {OPENED}, [OPENED]
    while to_see:
        for after in to_see.pop().after:
            if after is not None and after not in seen:
                seen.add(after)
                to_see.append(after)
    assert seen == set(STATES.values())
    assert len(seen) == (len(Input) - 1) * len(Output) * len(Room) + 1


def test_an_event_is_of_one_track_and_the_end_of_all() -> None:
    tracks = [{event for row in track.values() for event in row} for track in (INPUT, OUTPUT, ROOM)]
    for event in Event:
        assert sum(event in track for track in tracks) == 1


def test_no_state_waits_for_nothing() -> None:
    """It is read, has turns, or there is an event of another than the poller that it waits for."""
    for state in STATES.values():
        waits_for_others = state.postponed or state.starved
        assert state.reads or state.turns or state.writes or waits_for_others or state.closed
