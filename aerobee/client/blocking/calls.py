"""Calls of a user's functions, in the thread that makes the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aerobee.client.callables import call_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
R = TypeVar("R")


def call(function: Callable[[T], R], argument: T) -> R:
    """Call a user's function and return its result. Raises: what the function raises."""
    return function(argument)


call_in_worker = call_in_thread
"""The same in a worker of the client, which no exception may end."""
