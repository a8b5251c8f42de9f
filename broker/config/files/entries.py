"""The entries of a source of settings, before validation."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConfigurationError(ValueError):
    """The configuration is invalid: lists every problem, each with its location and key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Form(Enum):
    """The notation of a value, which decides how it is parsed."""

    YAML = "yaml"
    PROPERTIES = "properties"
    TEXT = "text"


class Scalar(NamedTuple):
    """One YAML scalar: its text, and the type that YAML resolves it to (str, int, bool, null …)."""

    text: str
    kind: str


Tree = Scalar | list["Tree"] | dict[str, "Tree"]


ENVIRONMENT = "environment: "
"""The prefix of a location in the environment; the variable follows."""
COMMAND_LINE = "command line: "
"""The prefix of a location on the command line; the option follows."""


class Entry(NamedTuple):
    """One setting as a source contains it."""

    name: str
    value: Tree
    location: str
    form: Form
    section: str = ""

    @property
    def where(self) -> str:
        """The location and the key, with which messages about the entry begin."""
        return where(self.location, self.name)


def where(location: str, name: str) -> str:
    """The location and the key; an environment variable is both."""
    return location if location.startswith(ENVIRONMENT) else f"{location}: {name}"


def join_tree(value: Tree, separator: str = ";") -> str:
    """The value as text, for keys that are only kept."""
    if isinstance(value, Scalar):
        return value.text
    if isinstance(value, list):
        return separator.join(join_tree(item, separator) for item in value)
    return separator.join(f"{name}={join_tree(item)}" for name, item in value.items())
