"""Reads the docstrings of a class's fields from its source, for pages that print them."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = __name__.partition(".")[0]


def meanings(cls: type[object]) -> dict[str, str]:
    """The docstring of each field on one line, for a class and its base classes in this project.

    Raises: OSError without the source.
    """
    classes = [base for base in reversed(cls.__mro__) if base.__module__.partition(".")[0] == OURS]
    return {name: text for base in classes for name, text in _below_fields(base)}


def _below_fields(cls: type[object]) -> Iterator[tuple[str, str]]:
    [body] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield ast.unparse(field.target), " ".join(ast.literal_eval(text.value).split())
