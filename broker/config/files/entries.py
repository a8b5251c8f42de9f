"""What a source of settings contains, before it is validated."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COMMAND_LINE",
    "ENVIRONMENT",
    "ConfigurationError",
    "Entry",
    "Form",
    "Scalar",
    "Tree",
    "join_tree",
    "where",
]


class ConfigurationError(ValueError):
    """What is wrong with the configuration: every problem, each with its location and key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Form(Enum):
    """How a value is written, and so which rules it follows."""

    YAML = "yaml"
    PROPERTIES = "properties"
    TEXT = "text"


class Scalar(NamedTuple):
    """One YAML scalar as it was written, and what YAML takes it for: str, int, bool, null, …"""

    text: str
    kind: str


Tree = Scalar | list["Tree"] | dict[str, "Tree"]


ENVIRONMENT = "environment: "
"""What the location of a variable begins with; the variable follows."""
COMMAND_LINE = "command line: "
"""What the location of an option begins with; the option follows."""


class Entry(NamedTuple):
    """One setting as somebody wrote it."""

    name: str
    value: Tree
    location: str
    form: Form
    section: str = ""

    @property
    def where(self) -> str:
        """What a message about it begins with: location and key."""
        return where(self.location, self.name)


def where(location: str, name: str) -> str:
    """Place and key; a variable of the environment is both."""
    return location if location.startswith(ENVIRONMENT) else f"{location}: {name}"


def join_tree(value: Tree, separator: str = ";") -> str:
    """The text form of a value whose meaning nobody needs."""
    if isinstance(value, Scalar):
        return value.text
    if isinstance(value, list):
        return separator.join(join_tree(item, separator) for item in value)
    return separator.join(f"{name}={join_tree(item)}" for name, item in value.items())
