"""The program in which a command runs where that is no shell: it keeps what the command prints.

The console of a broker runs commands so. `Surroundings` are the object of click's context, and are
found through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import click

BODIES_MAX_BYTES: Final = 8 * 1024 * 1024
"""Of the bodies that a program is given at once: two of the largest messages."""


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """The input of a command in place of options and a terminal, and its output."""

    connection: Any
    """The `Connection` of the command."""
    secret: str = ""
    """The secret of a user, where a command needs one."""
    bodies: bool = True
    """Whether bodies of messages are shown."""
    body_bytes: int = BODIES_MAX_BYTES
    """The bytes that are left for bodies: a body that does not fit is not shown, and asked for
    alone.
    """
    values: list[Any] = field(default_factory=list)
    """The values that it has printed with --json."""
    remarks: list[str] = field(default_factory=list)
    """The lines that it would have printed for people."""
    notes: list[str] = field(default_factory=list)
    """The lines that it would have printed on stderr."""

    def shows(self, size: int) -> bool:
        """Whether a body of this size is shown; its bytes are taken then."""
        fits = self.bodies and size <= self.body_bytes
        self.body_bytes -= size if fits else 0
        return fits


class Question(Exception):
    """A command would ask this before a change; nothing has been changed."""


def surroundings() -> Surroundings | None:
    """The surroundings of the running command; None in a shell."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(Surroundings)


def body_room() -> int | None:
    """The bytes of bodies that the running command may still give; None in a shell: any number."""
    kept = surroundings()
    return None if kept is None else kept.body_bytes
