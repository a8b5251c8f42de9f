"""The callables of users: handlers, hooks, checkers, selectors, callbacks. Pure.

An `async def` function or a generator function that is called does nothing yet: it returns an
object, and its code runs when somebody awaits or iterates that. A caller that ignored the object
would take a message for handled of which no line of the user's code has run. So such functions are
refused where they are given, and such results where they come back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from aerobee.errors import ConfigurationError


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling the function returns a coroutine."""
    return _is(iscoroutinefunction, function)


def check_function(what: str, function: object, *, awaited: bool = False) -> None:
    """Check that a call of the function runs its code; coroutines do if they are `awaited`.

    Raises: ConfigurationError.
    """
    if not callable(function):
        raise ConfigurationError(f"{what} is called, but {function!r} cannot be")
    if _is(isgeneratorfunction, function) or _is(isasyncgenfunction, function):
        raise ConfigurationError(f"{what} has a yield: a call would run nothing of it")
    if not awaited and is_async(function):
        raise ConfigurationError(f"{what} is called, not awaited: give a plain function")


def check_result(what: str, result: object) -> None:
    """Check that a result is none that has to be awaited or iterated first. Raises: TypeError."""
    if isinstance(result, (Awaitable, AsyncGenerator, Generator)):
        close = getattr(result, "close", None)
        if close is not None:
            close()  # A coroutine would warn that it was never awaited.
        raise TypeError(f"{what} returned a {type(result).__name__}, which nobody awaits")


def call_in_thread(function: Callable[[Any], Any], argument: object) -> Any:
    """Call a user's function in a thread of the client, which must not end by `sys.exit` or such.

    Raises: RuntimeError for a BaseException that is no Exception, else what the function raises.
    """
    try:
        return function(argument)
    except BaseException as error:
        if isinstance(error, Exception):
            raise
        raise RuntimeError(f"{error!r} of a handler or checker ends no thread") from error


def _is(kind: Callable[[Any], bool], function: Callable[..., object]) -> bool:
    return kind(function) or kind(type(function).__call__)
