"""What was logged during a test: the fixture `logged` of `tests.conftest`, and its reader."""

from collections.abc import MutableMapping
from typing import Any

Logged = list[MutableMapping[str, Any]]


def events(logged: Logged) -> list[str]:
    """The names of the events, in their order."""
    return [line["event"] for line in logged]
