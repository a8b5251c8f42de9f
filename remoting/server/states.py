"""The table of what a connection waits for: its states, the events that change them, and what each
state allows.

The theory. Two rules hold for a connection of any protocol:

1. Input that was read is served in order, and before more is read. 2. A peer that does not read
what it is sent is neither read nor served.

So a connection is in one state of each of three tracks, which know nothing of each other:

    INPUT    what of the bytes that were read is left for later
    OUTPUT   how far the peer takes what it is sent
    ROOM     whether there is memory for more of its bytes

Each track is a table: state → event → state. An event that a state does not list cannot happen in
it; if it does, that is a bug of ours. `State` is one state of all three tracks, and says what the
loop may do with such a connection. All states are made here, once: each combination of the tracks,
and a single one of connections that are closed.

Nothing here knows a socket, a clock or a request: the owner of a connection tells the events, and
keeps what is left (frames, steps, bytes) beside the state.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from itertools import product
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class Input(Enum):
    """The part of the input that is left."""

    READING = "reading"
    """Nothing but perhaps the beginning of a frame; in a turn, whatever is being served."""
    TURN_OVER = "turn over"
    """Whole frames, for its next turn."""
    STEPS = "steps"
    """A request that goes on in its next turn, and what was read behind it."""
    POSTPONED = "postponed"
    """A request that cannot be served before somebody resumes it, and what was read behind it."""
    BYTES = "bytes"
    """Bytes that are not split into frames yet, for its next turn."""
    STAGE = "stage"
    """Bytes that the stage below (TLS) has decrypted. No poller tells of them."""
    CLOSED = "closed"
    """The connection is over, and stays so, whatever happens."""


class Output(Enum):
    """The part of the output that is left."""

    FLOWING = "flowing"
    """Nothing that the kernel has refused."""
    STALLED = "stalled"
    """Some bytes; the poller says when the kernel takes more."""
    PAUSED = "paused"
    """More than the high-water mark, and since then not less than the low-water mark."""


class Room(Enum):
    """Whether the connection may hold more bytes that are not served."""

    ROOM = "room"
    STARVED = "starved"
    """The inbound budget is used up, and this connection is not the one that is read first."""


class Event(IntEnum):
    """An event of a connection."""

    TURN = 0
    """Its turn comes: what was left is served."""
    BEGUN = 1
    """A request needs more than one step."""
    ENDED = 2
    """The steps of the request have ended."""
    POSTPONED = 3
    """A request cannot be served now."""
    RESUMED = 4
    """The postponed request may be served."""
    FRAMES_LEFT = 5
    """The turn has ended before the frames have."""
    BYTES_LEFT = 6
    """The turn has ended before all bytes were split into frames."""
    STAGE_LEFT = 7
    """The turn has ended before the bytes in the stage below were taken."""
    SENT = 8
    """The kernel has taken everything."""
    UNSENT = 9
    """The kernel has not taken everything, or not yet."""
    UNSENT_MUCH = 10
    """More than the high-water mark is unsent."""
    UNSENT_LITTLE = 11
    """Less than the low-water mark is unsent."""
    STARVED = 12
    FED = 13
    CLOSED = 14


INPUT: Final[Mapping[Input, Mapping[Event, Input]]] = {
    Input.READING: {
        Event.TURN: Input.READING,
        Event.BEGUN: Input.STEPS,
        Event.ENDED: Input.READING,
        Event.POSTPONED: Input.POSTPONED,
        Event.FRAMES_LEFT: Input.TURN_OVER,
        Event.BYTES_LEFT: Input.BYTES,
        Event.STAGE_LEFT: Input.STAGE,
        Event.CLOSED: Input.CLOSED,
    },
    Input.TURN_OVER: {
        Event.TURN: Input.READING,
        Event.CLOSED: Input.CLOSED,
    },
    Input.STEPS: {
        Event.TURN: Input.STEPS,
        Event.ENDED: Input.READING,
        Event.POSTPONED: Input.POSTPONED,
        Event.CLOSED: Input.CLOSED,
    },
    Input.POSTPONED: {
        Event.RESUMED: Input.STEPS,
        Event.CLOSED: Input.CLOSED,
    },
    Input.BYTES: {
        Event.TURN: Input.READING,
        Event.CLOSED: Input.CLOSED,
    },
    Input.STAGE: {
        Event.TURN: Input.READING,
        Event.STAGE_LEFT: Input.STAGE,
        Event.CLOSED: Input.CLOSED,
    },
}

OUTPUT: Final[Mapping[Output, Mapping[Event, Output]]] = {
    Output.FLOWING: {
        Event.SENT: Output.FLOWING,
        Event.UNSENT: Output.STALLED,
    },
    Output.STALLED: {
        Event.SENT: Output.FLOWING,
        Event.UNSENT: Output.STALLED,
        Event.UNSENT_MUCH: Output.PAUSED,
        Event.UNSENT_LITTLE: Output.STALLED,
    },
    Output.PAUSED: {
        Event.SENT: Output.FLOWING,
        Event.UNSENT: Output.PAUSED,
        Event.UNSENT_MUCH: Output.PAUSED,
        Event.UNSENT_LITTLE: Output.STALLED,
    },
}

ROOM: Final[Mapping[Room, Mapping[Event, Room]]] = {
    Room.ROOM: {Event.STARVED: Room.STARVED},
    Room.STARVED: {Event.FED: Room.ROOM},
}


class State:
    """One state of each track, and what the loop may do with a connection in it."""

    __slots__ = (
        "after",
        "closed",
        "free",
        "input",
        "output",
        "paused",
        "postponed",
        "reads",
        "room",
        "stalled",
        "starved",
        "turns",
        "waits",
        "writes",
    )

    def __init__(self, input: Input, output: Output, room: Room) -> None:  # noqa: A002  (its name)
        self.input = input
        self.output = output
        self.room = room
        self.after: tuple[State | None, ...] = ()
        """The next state for each event; None where it cannot happen."""
        self.closed = input is Input.CLOSED
        self.postponed = input is Input.POSTPONED
        self.paused = output is Output.PAUSED
        self.stalled = output is not Output.FLOWING
        """Whether anything is unsent that the kernel does not take."""
        self.starved = room is Room.STARVED
        self.free = input is Input.READING and not self.paused
        """Whether the next request may be served in this turn."""
        if input is Input.STAGE:
            self.waits = not self.starved
        else:
            self.waits = input not in (Input.READING, Input.CLOSED)
        self.turns = self.waits and not (self.paused or self.postponed)
        """Whether it has a turn in the next round, whatever the poller says."""
        self.reads = self.free and not self.starved
        """Whether the poller is to say when there is something to read."""
        self.writes = (self.waits and not self.postponed) or self.stalled
        """Whether the poller is to say when there is room to write. Input that is left for a turn
        asks for that too: the event, which comes at once, brings the turn.
        """

    def __repr__(self) -> str:
        return f"{self.input.value}, {self.output.value}, {self.room.value}"


T = TypeVar("T")


def _moved(track: Mapping[T, Mapping[Event, T]], state: T, event: Event) -> T | None:
    """The next state of a track; the same where the event is not about it."""
    if any(event in row for row in track.values()):
        return track[state].get(event)
    return state


def _all_states() -> dict[tuple[Input, Output, Room], State]:
    """Every state, each linked with those behind it."""
    states = {
        parts: State(*parts)
        for parts in product(Input, Output, Room)
        if parts[0] is not Input.CLOSED
    }
    closed = State(Input.CLOSED, Output.FLOWING, Room.ROOM)
    states[closed.input, closed.output, closed.room] = closed
    for state in states.values():
        if state is closed:
            state.after = (closed,) * len(Event)
            continue
        after: list[State | None] = []
        for event in Event:
            moved = (
                _moved(INPUT, state.input, event),
                _moved(OUTPUT, state.output, event),
                _moved(ROOM, state.room, event),
            )
            if moved[0] is Input.CLOSED:
                after.append(closed)
            elif None in moved:
                after.append(None)
            else:
                after.append(states[moved])  # type: ignore[index]  # None is not among them
        state.after = tuple(after)
    return states


STATES: Final = _all_states()
OPENED: Final = STATES[Input.READING, Output.FLOWING, Room.ROOM]
"""The first state of a connection."""
CLOSED: Final = STATES[Input.CLOSED, Output.FLOWING, Room.ROOM]
"""The last one, whatever happens."""
