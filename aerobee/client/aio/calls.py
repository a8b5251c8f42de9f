"""Calls of a user's functions: coroutines run in the caller's task, plain functions in a thread."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from aerobee.client.callables import call_in_thread, is_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
R = TypeVar("R")


async def call(function: Callable[[T], R | Awaitable[R]], argument: T) -> R:
    """Call a user's function and return its result. Raises: what the function raises."""
    if is_async(function):
        result = function(argument)
    else:
        result = await anyio.to_thread.run_sync(
            call_in_thread, function, argument, abandon_on_cancel=True
        )
    return await result if isawaitable(result) else result


call_in_worker = call
"""The same in a worker of the client: a plain function is in a thread either way."""
