"""The life of a client, and of its producers and consumers: one table of states and events.

    NEW ─start→ STARTING ─started→ RUNNING ─close→ CLOSING ─ended→ CLOSED
     ↑             │                  │
     └──ended──────┘                  └─ended→ LOST ─close→ CLOSED

A start that failed or was cancelled leaves the object NEW, so that it can be started again. ENDED
while RUNNING means that nobody called close: a task group was cancelled from outside, or a bug of
ours ended the background work. Both fronts change states through `Life.on` only.
"""

from __future__ import annotations

from enum import Enum

from aerobee.client import forgotten
from aerobee.errors import AerobeeError, ClientClosedError, ClientStateError


class State(Enum):
    """The state of a client, producer or consumer."""

    NEW = "not started"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    LOST = "ended without a close"


class Event(Enum):
    """An event of its life."""

    START = "start"
    """`start` is called, or a `with` block is entered."""
    STARTED = "started"
    """Its background work runs."""
    CLOSE = "close"
    """`aclose` or `close` is called, or the block is left."""
    ENDED = "ended"
    """Its background work has ended, or did not begin."""
    RESET = "reset"
    """The start of the producer or consumer that owns this client has failed."""


ONCE = "is started once"
OVER = "is closed: make a new one"
GONE = (
    "has ended although nobody closed it: its tasks were cancelled from outside, or a bug ended "
    "them (see the log); close it and make a new one"
)

TABLE: dict[tuple[State, Event], State | str] = {
    (State.NEW, Event.START): State.STARTING,
    (State.NEW, Event.CLOSE): State.CLOSED,
    (State.NEW, Event.RESET): State.NEW,
    (State.STARTING, Event.START): ONCE,
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.CLOSE): State.CLOSING,
    (State.STARTING, Event.ENDED): State.NEW,
    (State.RUNNING, Event.START): ONCE,
    (State.RUNNING, Event.CLOSE): State.CLOSING,
    (State.RUNNING, Event.ENDED): State.LOST,
    (State.CLOSING, Event.START): OVER,
    (State.CLOSING, Event.STARTED): State.CLOSING,
    (State.CLOSING, Event.CLOSE): State.CLOSING,
    (State.CLOSING, Event.ENDED): State.CLOSED,
    (State.CLOSED, Event.START): OVER,
    (State.CLOSED, Event.STARTED): State.CLOSED,
    (State.CLOSED, Event.CLOSE): State.CLOSED,
    (State.CLOSED, Event.ENDED): State.CLOSED,
    (State.CLOSED, Event.RESET): State.NEW,
    (State.LOST, Event.START): GONE,
    (State.LOST, Event.CLOSE): State.CLOSED,
    (State.LOST, Event.ENDED): State.LOST,
}
"""State and event → the next state, or the refusal. A pair that is missing would be a bug."""


class Life:
    """The state of one client, producer or consumer."""

    __slots__ = ("__weakref__", "state", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        """The name of its kind, as in "PushConsumer", for its errors."""
        self.state = State.NEW

    def on(self, event: Event) -> State:
        """Change the state by an event; returns the state before it.

        Raises: ClientStateError for a start that this state excludes.
        """
        before = self.state
        following = TABLE[before, event]
        if isinstance(following, str):
            refused = ClientStateError if before in STARTED else ClientClosedError
            raise refused(f"this {self.what} {following}")
        self.state = following
        if following is State.RUNNING:
            forgotten.note_open(self, self.what)
        elif following not in UNCLOSED:
            forgotten.note_closed(self)
        return before

    def refusal(self) -> AerobeeError | None:
        """The error for a call that needs it RUNNING; None if it is."""
        match self.state:
            case State.RUNNING:
                return None
            case State.NEW | State.STARTING:
                return ClientStateError(f"this {self.what} is not started: use `with`, or start()")
            case State.LOST:
                return ClientClosedError(f"this {self.what} {GONE}")
            case _:
                return ClientClosedError(f"this {self.what} is closed")


STARTED = (State.STARTING, State.RUNNING)
UNCLOSED = (State.RUNNING, State.LOST)
